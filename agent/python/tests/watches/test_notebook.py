"""The link to the live page below a notebook's cell."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from trainmon.watches.startup import start_monitor
from trainmon.watches.watch import Watch


class Notebook:
    """As much of IPython as a link needs; `shown` is what was displayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: object | None) -> None:
        self.shown: list[str] = []
        package, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        shell = types.SimpleNamespace(kernel=kernel)
        package.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = str  # type: ignore[attr-defined]
        display.display = self.shown.append  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)


def watch_once(tmp_path: Path, **config: Any) -> str | None:
    """Watches a model; the address of its live page."""
    page = {"wg_distribution": True, "ops": ["norm"], "format": ["prometheus"], "prometheus": {"port": 0, **config}}
    monitor = start_monitor(page, output_dir=str(tmp_path))
    with Watch(nn.Linear(2, 1), None, monitor):
        places = dict(monitor.locations())["prometheus"]
    return next((place for place in places if place.endswith("/")), None)


def test_a_notebook_is_shown_one_link_to_the_live_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    notebook = Notebook(monkeypatch, kernel=object())
    address = watch_once(tmp_path)
    assert address is not None
    (shown,) = notebook.shown
    assert f'<a href="{address}" target="_blank" rel="noopener">' in shown


def test_a_terminal_and_a_run_without_the_page_are_shown_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = Notebook(monkeypatch, kernel=None)
    assert watch_once(tmp_path) is not None
    assert terminal.shown == []
    notebook = Notebook(monkeypatch, kernel=object())
    assert watch_once(tmp_path, page=False) is None
    assert notebook.shown == []


def test_what_goes_wrong_in_the_display_does_not_reach_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Notebook(monkeypatch, kernel=object())

    def refuse(_: object) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr(sys.modules["IPython.display"], "display", refuse)
    assert watch_once(tmp_path) is not None
