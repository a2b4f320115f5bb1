"""Writes the dashboards."""

from __future__ import annotations

from grafana.generate import write_all

if __name__ == "__main__":
    write_all()
