"""What every test of captures begins with."""

from __future__ import annotations

import pytest

from support.captures import no_debugger_yet


@pytest.fixture(autouse=True)
def no_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a debugger of its own, and a `SingleSave`."""
    no_debugger_yet(monkeypatch)
