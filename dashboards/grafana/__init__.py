"""The Grafana dashboards, made from the metric catalogue with Grafana's own builders.

`python -m grafana` in `dashboards` writes `dashboards/grafana/json` anew; a test fails while it lags behind.
"""
