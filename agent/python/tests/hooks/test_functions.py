"""Listening to functions of a framework: one wrapper whoever listens, and nothing left behind."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from trainmon.frameworks.functions import listen_after, listen_before


def framework() -> Any:
    module = ModuleType("framework")
    module.add = lambda a, b=1: a + b  # type: ignore[attr-defined]
    return module


def test_arguments_and_results_pass_through() -> None:
    module, heard = framework(), []
    first = listen_before(module, "add", lambda *args, **named: heard.append((args, named)))
    second = listen_after(module, "add", lambda result, *args, **named: heard.append((result, args, named)))
    assert module.add(2, b=3) == 5
    assert heard == [((2,), {"b": 3}), (5, (2,), {"b": 3})]
    first.remove()
    second.remove()


def test_the_last_listener_puts_the_function_back() -> None:
    module, heard = framework(), []
    original = module.add
    ears = [listen_before(module, "add", lambda *_args, name=name: heard.append(name)) for name in "ab"]
    wrapped = module.add
    ears[0].remove()
    ears[0].remove()
    assert module.add is wrapped
    module.add(1)
    assert heard == ["b"]
    ears[1].remove()
    assert module.add is original


def test_somebody_elses_wrapper_is_left_alone() -> None:
    module, heard = framework(), []
    ear = listen_before(module, "add", lambda *_args: heard.append("first"))
    ours = module.add
    theirs = module.add = lambda *args: ours(*args) * 10
    ear.remove()
    assert module.add is theirs
    assert module.add(1) == 20
    again = listen_before(module, "add", lambda *_args: heard.append("second"))
    assert module.add(1) == 20
    assert heard == ["second"], "once, though it was wrapped before"
    again.remove()
    assert module.add is theirs


def test_a_function_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="has no `subtract`"):
        listen_before(framework(), "subtract", lambda *_args: None)
