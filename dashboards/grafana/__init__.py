"""The Grafana dashboards, generated from the metric catalogue with Grafana's own builders.

In `dashboards`, `python -m grafana` writes `dashboards/grafana/json`; a test fails while it is outdated.
"""
