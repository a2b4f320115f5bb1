"""A link to the live page, below a notebook's cell."""

from __future__ import annotations

import html
import importlib
import sys

from trainmon._trainmon import Monitor


def live_page(monitor: Monitor) -> str | None:
    """The address of the live page; None if it is not served."""
    for exporter, places in monitor.locations():
        if exporter == "prometheus":
            return next((place for place in places if place.endswith("/")), None)
    return None


def show_link(monitor: Monitor) -> None:
    """Shows a link to the live page in a notebook. Does nothing elsewhere: IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # A terminal's shell has no kernel, and cannot show a link.
    if shell is None or getattr(shell, "kernel", None) is None:
        return
    page = live_page(monitor)
    if page is None:
        return
    address = html.escape(page, quote=True)
    link = f'trainmon: <a href="{address}" target="_blank" rel="noopener">live page of this run</a> ({address})'
    display = importlib.import_module("IPython.display")
    display.display(display.HTML(link))
