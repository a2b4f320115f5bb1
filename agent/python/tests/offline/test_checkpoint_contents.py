"""`trainmon compare-checkpoint` on everything that torch writes into a file and reads again: whatever differs is found,
or is named as not read. No file of which a part was left out is called identical."""

from __future__ import annotations

import collections
import copy
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainmon._trainmon import run_program

PROTOCOLS = (2, 3, 4, 5)


class Called:
    """Pickled as a call with these arguments, as Python 2 and other writers make containers."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.parts = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.parts


def weights(shift: float = 0.0) -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + shift


def array(shift: float = 0.0, dtype: Any = "<f4") -> Any:
    return (np.arange(6).reshape(2, 3) + shift).astype(dtype)


def with_attribute(x: Any) -> Any:
    made: Any = collections.OrderedDict(a=1)
    made.hidden = x
    return made


#: What holds a tensor, and how it is made of one.
CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda x: {"w": x},
    "list": lambda x: [x, x],
    "tuple": lambda x: (1, (x,)),
    "set": lambda x: {"names": {"a", "b"}, "w": x},
    "OrderedDict": lambda x: collections.OrderedDict(w=x),
    "OrderedDict of pairs": lambda x: Called(collections.OrderedDict, [["w", x], ["v", x]]),
    "OrderedDict of a dict": lambda x: Called(collections.OrderedDict, {"w": x}),
    "Counter": lambda x: collections.Counter({"w": x}),
    "defaultdict": lambda x: collections.defaultdict(list, w=x),
    "defaultdict of pairs": lambda x: Called(collections.defaultdict, list, [("w", x)]),
    "dict of pairs": lambda x: Called(dict, [("w", x)]),
    "list of a tuple": lambda x: Called(list, (x, x)),
    "list of a call": lambda x: Called(list, Called(tuple, [x, x])),
    "deque": lambda x: collections.deque([x], maxlen=3),
    "deque of a list": lambda x: Called(collections.deque, [x], 3),
    "parameter": lambda x: {"w": torch.nn.Parameter(x) if isinstance(x, torch.Tensor) else x},
    "state dict": lambda x: {"model": {"a.w": x}, "optimizer": {"state": {0: {"exp_avg": x}}, "lr": 0.1}},
    "attribute": with_attribute,
}


def saved(path: Path, what: Any, protocol: int = 2, *, archive: bool = True) -> Path:
    torch.save(what, path, pickle_protocol=protocol, _use_new_zipfile_serialization=archive)
    return path


def compared(capfd: pytest.CaptureFixture[str], target: Path, golden: Path) -> tuple[int, dict[str, Any]]:
    code = run_program(["trainmon", "compare-checkpoint", str(target), str(golden), "--json"])
    answer: dict[str, Any] = json.loads(capfd.readouterr().out)
    return code, answer


def differs(capfd: pytest.CaptureFixture[str], tmp_path: Path, one: Any, other: Any, **how: Any) -> None:
    """Two equal files are the same, two that differ are not."""
    first, again, changed = (tmp_path / f"{name}.pth" for name in ("one", "again", "other"))
    saved(first, one, **how)
    saved(again, copy.deepcopy(one), **how)
    saved(changed, other, **how)
    code, answer = compared(capfd, again, first)
    assert code == 0 and answer["summary"]["identical"] > 0, answer
    code, answer = compared(capfd, changed, first)
    assert code == 1 and answer["summary"]["different"] > 0, answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "legacy"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_what_a_container_holds_is_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], container: str, archive: bool, protocol: int
) -> None:
    make = CONTAINERS[container]
    differs(capfd, tmp_path, make(weights()), make(weights(1.0)), protocol=protocol, archive=archive)
    differs(capfd, tmp_path, make(array()), make(array(1.0)), protocol=protocol, archive=archive)


CODES = ("<f2", "<f4", ">f8", "i1", "<i2", ">i4", "<i8", "u1", "<u2", "<u4", "<u8", "<c8", ">c16")

ARRAYS: dict[str, Callable[[float], Any]] = {
    **{code: functools.partial(array, dtype=code) for code in CODES},
    "bool": lambda shift: array(shift) > 3,
    "Fortran": lambda shift: np.asfortranarray(array(shift)),
    "transposed": lambda shift: array(shift).T,
    "every second": lambda shift: array(shift)[:, ::2],
    "no dimensions": np.array,
    "scalar": np.float32,
    "big-endian scalar": lambda shift: np.array(shift, ">f8")[()],
    "bool scalar": lambda shift: np.bool_(shift > 0.5),
    "objects": lambda shift: np.array([weights(shift), None], dtype=object),
    "bytes": lambda shift: bytes([1, 200, int(shift)]),
    "bytearray": lambda shift: bytearray([1, 200, int(shift)]),
    "storage": lambda shift: weights(shift).untyped_storage(),
    "typed storage": lambda shift: torch.storage.TypedStorage(
        wrap_storage=weights(shift).untyped_storage(), dtype=torch.float32, _internal=True
    ),
    "random state": lambda shift: np.random.RandomState(int(shift)).get_state(),
    "generator": lambda shift: np.random.default_rng(int(shift)).bit_generator.random_raw(3),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy_and_bytes_are_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, protocol: int
) -> None:
    one, other = ({"x": ARRAYS[name](shift), "w": weights()} for shift in (0.0, 1.0))
    differs(capfd, tmp_path, one, other, protocol=protocol)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_hold_the_numbers_of_the_tensor_they_equal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], order: Any
) -> None:
    tensors = {"w": weights(), "v": weights().double()}
    arrays = {"w": np.array(array(), order=order), "v": np.array(array(0, ">f8"), order=order)}
    code, answer = compared(capfd, saved(tmp_path / "a.pth", arrays), saved(tmp_path / "t.pth", tensors))
    assert (code, answer["summary"]["identical"]) == (0, 2), answer


def quantised() -> torch.Tensor:
    return torch.quantize_per_tensor(weights(), 0.1, 0, torch.qint8)


UNREAD: dict[str, Callable[[], Any]] = {
    "sparse": lambda: weights().to_sparse(),
    "compressed rows": lambda: weights().to_sparse_csr(),
    "quantised": quantised,
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "conjugate": lambda: torch.complex(weights(), weights()).conj(),
    "meta": lambda: torch.ones(2, device="meta"),
    "records": lambda: np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]),
    "texts": lambda: np.array(["a", "b"]),
    "times": lambda: np.zeros(2, dtype="datetime64[s]"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], mask=[True, False]),
}


@pytest.mark.parametrize("kind", UNREAD)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_read_is_named_and_no_file_with_it_is_identical(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    one, other = (saved(tmp_path / f"{name}.pth", {"x": UNREAD[kind](), "w": weights()}) for name in "ab")
    code, answer = compared(capfd, one, other)
    assert code == 1 and answer["same"] is False, answer
    assert [name for name, _ in answer["target"]["unreadable"]] == ["x"], answer


def test_plain_values_are_compared_and_those_of_one_side_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = saved(tmp_path / "a.pth", {"w": weights(), "epoch": 3, "args": {"lr": 0.1, "name": "x"}, "none": None})
    other = saved(tmp_path / "b.pth", {"w": weights(), "epoch": 3})
    code, answer = compared(capfd, one, other)
    assert code == 0 and answer["summary"]["values"] == 1 and answer["other_values"] == []
    assert answer["target"]["notes"] == ["2 non-tensor values only in this checkpoint: args.lr, args.name"]
    assert answer["golden"]["notes"] == []
    state = {"param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}], "state": {0: {"exp_avg": weights()}}}
    changed = copy.deepcopy(state)
    changed["param_groups"][0]["lr"] = 5e-4
    one, other = (
        saved(tmp_path / f"{name}.pth", {"w": weights(), "o": it}) for name, it in (("c", state), ("d", changed))
    )
    code, answer = compared(capfd, one, other)
    assert code == 1 and answer["same"] is False
    assert answer["other_values"] == [{"name": "o.param_groups.0.lr", "target": "0.001", "golden": "0.0005"}]


def test_a_wrapped_model_beside_its_optimizer_is_the_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = {f"b.{index}.w": weights(index) for index in range(3)}
    state = {0: {"exp_avg": weights(9)}}
    wrapped = {f"module.{name}": weight for name, weight in model.items()}
    one = saved(tmp_path / "a.pth", {"model": wrapped, "optimizer": {"state": state}})
    other = saved(tmp_path / "b.pth", {"model": model, "optimizer": {"state": state}})
    for target, golden in ((one, other), (other, one)):
        code, answer = compared(capfd, target, golden)
        assert code == 0 and answer["summary"]["identical"] == 4, answer
    changed = saved(tmp_path / "c.pth", {"model": {**model, "b.1.w": weights(7)}, "optimizer": {"state": state}})
    code, answer = compared(capfd, one, changed)
    assert code == 1 and answer["summary"]["different"] == 1, answer


class Subclass(torch.Tensor):
    """A tensor of another class."""


def with_state(shift: float) -> torch.Tensor:
    made = torch.nn.Parameter(weights(shift))
    made.partition_stride = 1  # type: ignore[attr-defined]
    return made


#: By the calls of torch that make tensors of what a file holds: a tensor whose file names that call.
REBUILT: dict[str, Callable[[float], Any]] = {
    "torch._utils._rebuild_tensor": lambda shift: Called(
        torch._utils._rebuild_tensor, weights(shift).untyped_storage(), 0, (6,), (1,)
    ),
    "torch._utils._rebuild_tensor_v2": weights,
    "torch._utils._rebuild_tensor_v3": lambda shift: weights(shift).to(torch.uint16),
    "torch._utils._rebuild_parameter": lambda shift: torch.nn.Parameter(weights(shift)),
    "torch._utils._rebuild_parameter_with_state": with_state,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": lambda shift: Called(
        torch._utils._rebuild_device_tensor_from_cpu_tensor, weights(shift), torch.float32, "cpu", False
    ),
    "torch._utils._rebuild_device_tensor_from_numpy": lambda shift: Called(
        torch._utils._rebuild_device_tensor_from_numpy, array(shift), torch.float32, "cpu", False
    ),
    "torch._utils._rebuild_meta_tensor_no_storage": lambda _shift: torch.ones(2, device="meta"),
    "torch._utils._rebuild_nested_tensor": lambda shift: torch.nested.nested_tensor([torch.ones(2), weights(shift)[0]]),
    "torch._utils._rebuild_qtensor": lambda shift: torch.quantize_per_tensor(weights(shift), 0.1, 0, torch.qint8),
    "torch._utils._rebuild_sparse_tensor": lambda shift: weights(shift).to_sparse(),
    "torch._utils._rebuild_wrapper_subclass": lambda _shift: Called(
        torch._utils._rebuild_wrapper_subclass, Subclass, torch.float32, (2,), (1,), 0, torch.strided, "cpu", False
    ),
    "torch._tensor._rebuild_from_type_v2": lambda shift: weights(shift).as_subclass(Subclass),
}


@pytest.mark.parametrize("call", REBUILT)
@pytest.mark.filterwarnings("ignore")
def test_every_call_that_makes_a_tensor_is_read_or_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    one, other = (
        saved(tmp_path / f"{shift}.pth", {"x": REBUILT[call](shift), "w": weights()}, archive=False)
        for shift in (0.0, 1.0)
    )
    module, name = call.rsplit(".", 1)
    assert f"c{module}\n{name}\n".encode() in one.read_bytes()
    code, answer = compared(capfd, other, one)
    assert code == 1, answer
    unread = [name for name, _ in answer["target"]["unreadable"]]
    assert unread == ["x"] or answer["summary"]["different"] == 1, answer


def test_torchs_own_list_of_what_it_loads_without_trust_holds_nothing_else() -> None:
    """So that a new one is not overlooked."""
    from torch._weights_only_unpickler import _get_allowed_globals

    allowed = _get_allowed_globals()
    plain = {name for name, what in allowed.items() if isinstance(what, torch.dtype | torch.qscheme)}
    storages = {name for name in allowed if name.endswith("Storage")}
    # Classes that the calls above are given.
    classes = {name for name in allowed if name.endswith(("Tensor", ".Parameter"))}
    others = {"torch.device", "torch.Size", "builtins.complex", "torch.serialization._get_layout"}
    containers = {"collections.OrderedDict", "collections.Counter", "builtins.set"}
    contents = {"builtins.bytearray", "_codecs.encode"}
    assert set(allowed) - plain - storages - classes == {*REBUILT, *others, *containers, *contents}


def test_chance_of_many_structures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Containers in containers, as deep as chance has it."""
    chance = random.Random(5)
    for _ in range(20):
        names = [chance.choice(list(CONTAINERS)) for _ in range(chance.randint(1, 4))]

        def made(leaf: Any, names: list[str] = names) -> Any:
            for name in names:
                leaf = CONTAINERS[name](leaf)
            return leaf

        leaf = chance.choice([weights, array])
        protocol, archive = chance.choice(PROTOCOLS), chance.random() < 0.5
        differs(capfd, tmp_path, made(leaf()), made(leaf(1.0)), protocol=protocol, archive=archive)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_sets_members_have_no_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Any, protocol: int
) -> None:
    """What collides in a set's table comes in the order it was put in: 0, 8 and 16 do."""
    weight = torch.ones(2)
    for name, members in (("one", [0, 8, 16]), ("other", [16, 8, 0]), ("more", [16, 8, 24])):
        torch.save({"w": weight, "numbers": kind(members)}, tmp_path / f"{name}.pt", pickle_protocol=protocol)
    assert list(kind([0, 8, 16])) != list(kind([16, 8, 0]))
    code, answer = compared(capfd, tmp_path / "one.pt", tmp_path / "other.pt")
    assert (code, answer["same"]) == (0, True), answer
    code, answer = compared(capfd, tmp_path / "more.pt", tmp_path / "other.pt")
    assert (code, answer["same"]) == (1, False), answer
