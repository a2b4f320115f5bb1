"""The loading of plugins: those that the test names."""

from __future__ import annotations

from collections.abc import Callable

general_plugins: list[Callable[[], None]] = []


def load_general_plugins() -> None:
    for plugin in general_plugins:
        plugin()
