"""What a script calls of `PrecisionDebugger`'s: single modules, functions of its own, `with debugger(model):`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.captures import entries
from support.untouched import assert_untouched, names_of_torch
from trainmon import PrecisionDebugger, module_dump, module_dump_end
from trainmon.captures.session import CaptureSession


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A session that a test leaves open is not the next one's."""
    yield
    left = CaptureSession.owner
    if left is not None:
        # The tests behind it start without.
        left.stop()
    assert left is None


def test_only_the_module_is_captured_between_module_dump_and_its_end(tmp_path: Path) -> None:
    before = names_of_torch()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    mine = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    x = torch.ones(1, 2)
    debugger.start()
    torch.relu(x)
    module_dump(mine, "mine")
    module_dump(nn.Linear(1, 1), "second")
    result = mine(x)
    nn.Linear(2, 2)(x)
    torch.sin(x)
    result.sum().backward()
    module_dump_end()
    torch.cos(x)
    mine(x)
    debugger.stop()
    debugger.step()
    data = entries(tmp_path)
    assert [name for name in data if name.startswith("Module.")] == [
        "Module.mine.Sequential.forward.0",
        "Module.mine.Sequential.backward.0",
    ]
    assert torch.equal(
        torch.tensor(data["Module.mine.Sequential.forward.0"]["output"][0]["Max"]), result.max().detach()
    )
    functions = [name for name in data if not name.startswith("Module.")]
    assert functions[:3] == ["Torch.relu.0.forward", "Torch.cos.0.forward", "Functional.linear.0.forward"]
    assert not [name for name in functions if ".sin." in name]
    assert_untouched(before, mine)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_single_module_is_captured_where_start_was_given_no_model(tmp_path: Path, level: str) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level=level)
    mine, x = nn.Linear(2, 2), torch.ones(1, 2)
    debugger.start()
    module_dump(mine, "mine")
    mine(x)
    module_dump_end()
    mine(x)
    debugger.stop()
    names = ["Module.mine.Linear.forward.0", *(["Functional.linear.0.forward"] if level == "mix" else [])]
    assert list(entries(tmp_path)) == names


def test_nothing_happens_on_module_dump_where_start_was_given_the_model(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    debugger.start(model)
    module_dump(model[0], "mine")
    model(x)
    module_dump_end()
    debugger.stop()
    assert list(entries(tmp_path)) == ["Module.0.Linear.forward.0"]


def test_what_is_no_module_or_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="build `PrecisionDebugger`"):
        module_dump(nn.ReLU(), "mine")
    PrecisionDebugger(dump_path=str(tmp_path / "dump"))
    with pytest.raises(TypeError, match="expected a module, found `int`"):
        module_dump(3, "mine")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a name, found `int`"):
        module_dump(nn.ReLU(), 3)  # type: ignore[arg-type]
    module_dump(nn.ReLU(), "mine")
    module_dump_end()
    assert not (tmp_path / "dump").exists()


def twice(x: torch.Tensor, *, plus: float = 0.0) -> torch.Tensor:
    return torch.add(x * 2, plus)


@pytest.fixture
def library() -> types.ModuleType:
    module = types.ModuleType("mylib")
    module.twice = twice  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("prefix", [None, "Own"])
def test_a_function_of_the_users_is_captured_under_its_prefix(tmp_path: Path, library: Any, prefix: str | None) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    debugger.register_custom_api(library, "twice", prefix)
    assert library.twice is twice, "nothing is replaced before the capture"
    x = torch.tensor([1.0, -3.0])
    debugger.start()
    result = library.twice(x, plus=1.0)
    debugger.stop()
    assert library.twice is twice
    debugger.step()
    assert result.tolist() == [3.0, -5.0]
    name = f"{prefix or 'mylib'}.twice.0.forward"
    data = entries(tmp_path)
    assert list(data) == [name], "and what it calls is not"
    assert data[name]["input_args"][0]["Min"] == -3.0
    assert data[name]["input_kwargs"] == {"plus": {"type": "float", "value": 1.0}}
    assert data[name]["output"][0]["Max"] == 3.0
    debugger.restore_custom_api(library, "twice")
    debugger.start()
    library.twice(x)
    assert library.twice is twice
    debugger.stop()
    assert name not in entries(tmp_path, 1)


def test_a_function_is_restored_in_mid_capture_and_may_be_registered_there(tmp_path: Path, library: Any) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    debugger.start()
    debugger.register_custom_api(library, "twice")
    debugger.register_custom_api(library, "twice", "Another")
    library.twice(torch.ones(1))
    debugger.restore_custom_api(library, "twice")
    assert library.twice is twice
    debugger.restore_custom_api(library, "twice")
    debugger.restore_custom_api(library, "nothing")
    debugger.stop()
    assert list(entries(tmp_path)) == ["mylib.twice.0.forward"]


class Methods:
    """Attributes of each kind."""

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        assert cls is Heir
        return x + 1


class Heir(Methods):
    """Has them from its base."""


@pytest.mark.parametrize("owner", [Methods, Heir, Heir()], ids=["class", "heir", "object"])
@pytest.mark.parametrize("name", ["plain", "static", "of_class"])
def test_methods_of_each_kind_are_called_as_before_and_are_the_same_afterwards(
    tmp_path: Path, owner: Any, name: str
) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    before = [dict(vars(one)) for one in (Methods, Heir)]
    own = dict(vars(owner))
    debugger.register_custom_api(owner, name, "Kind")
    caller = owner if owner.__class__ is Heir else Heir()
    debugger.start()
    result = getattr(caller, name)(torch.ones(1))
    debugger.stop()
    assert result.tolist() == [2.0]
    assert [dict(vars(one)) for one in (Methods, Heir)] == before
    assert dict(vars(owner)) == own
    assert list(entries(tmp_path)) == [f"Kind.{name}.0.forward"]


def test_a_function_that_is_none_is_refused(tmp_path: Path, library: Any) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="L1")
    library.number = 3
    with pytest.raises(TypeError, match="`mylib` has no function `triple`"):
        debugger.register_custom_api(library, "triple")
    with pytest.raises(TypeError, match="`mylib` has no function `number`"):
        debugger.register_custom_api(library, "number")


class Stumbles(nn.Module):
    """Raises in its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.fc(x)
        if self.calls == 2:
            raise KeyError("mine")
        return x


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_body_that_raises_ends_the_step_and_leaves_nothing_in_place(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(Stumbles())
    before = names_of_torch()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level=level)

    def step() -> None:
        with debugger(model) as given:
            assert given is debugger
            model(torch.ones(1, 2)).sum().backward()
            model(torch.ones(1, 2))

    with pytest.raises(KeyError, match="mine"):
        step()
    assert_untouched(before, model)
    assert CaptureSession.owner is None
    (directory,) = (tmp_path / "step0").iterdir()
    documents = {path.name: json.loads(path.read_text()) for path in directory.glob("*.json")}
    assert set(documents) == {"dump.json", "stack.json", "construct.json"}
    data = documents["dump.json"]["data"]
    if level != "L1":
        assert "output" in data["Module.0.fc.Linear.forward.1"]
        assert "output" not in data["Module.0.Stumbles.forward.1"]
        assert "Module.0.fc.Linear.backward.0" in data
    if level != "L0":
        assert "output" in data["Functional.linear.1.forward"]
    assert not list(directory.glob("*.records"))
    with debugger(model):
        model(torch.ones(1, 2))
    assert len(entries(tmp_path, 1)) >= 1, "the step was ended: this one has the next number"
    assert_untouched(before, model)
