"""Megatron-core: what is written equals a twin of the model, in every way of training; nothing changes by watching."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from support.matrix import full_matrix_only
from support.ranks import run_ranks
from trainmon.frameworks import megatron_sync, recognise
from trainmon.frameworks.megatron_shards import holdings, is_sharded

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

#: Each trains 20 steps on two ranks, twice, once watched; the first and "sharded" once more with every hook of ours
#: failing, and "sharded" with one function of ours failing after the other.
CASES = (
    "plain",
    "plain16",
    "sharded",
    "sharded32",
    "instances",
    "tensor",
    "tensor_dist",
    "pipeline",
    "interleaved",
    "overflow",
    "experts",
    "experts_dist",
    "tokens",
    "rerun",
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one launch of all cases printed."""
    try:
        return run_ranks("megatron_cases.py", 2, tmp_path_factory.mktemp("megatron"), *CASES, timeout=1200)
    except AssertionError as failed:
        return str(failed)


@pytest.mark.parametrize("case", CASES)
def test_shows_what_the_twin_computes(output: str, case: str) -> None:
    """Gradients before and after reduction, moments, parameters, directions, norms; after 20 steps the training is
    the same to the bit: losses, gradients of every step, parameters, moments, the random state."""
    for rank in range(2):
        assert f"case {case} rank {rank} ok" in output, output[-6000:]


@full_matrix_only("four ranks of Megatron take half a minute on two cores; two ranks try each dimension alone")
def test_tensor_and_data_parallel_at_once(tmp_path: Path) -> None:
    """Two tensor-parallel ranks in each of two data-parallel copies; and experts that get no token."""
    cases = ("tensor", "tensor_dist", "experts_idle")
    said = run_ranks("megatron_cases.py", 4, tmp_path, *cases, timeout=1200)
    assert all(f"case {case} rank {rank} ok" in said for case in cases for rank in range(4)), said[-6000:]


def test_importable_megatron_is_not_megatron(tmp_path: Path) -> None:
    """A plain model in the same environment is plain."""
    import megatron.core.distributed  # noqa: F401  (imported, and still not recognised)

    net = torch.nn.Linear(2, 2)
    assert recognise([net], torch.optim.SGD(net.parameters(), lr=0.1)).name == "torch"


class Calls:
    """Stands for a bucket of Megatron before 0.9."""

    def __init__(self) -> None:
        self.communication_handle: Any = None
        self.calls: list[Any] = []

    def start_grad_sync(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "done"


@pytest.fixture
def bucket_class(monkeypatch: pytest.MonkeyPatch) -> type[Calls]:
    """A fresh class as the one named `Bucket` in Megatron's module."""
    owner = type("Bucket", (), dict(vars(Calls)))
    module = types.ModuleType("buffers")
    module.Bucket = owner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.distributed.param_and_grad_buffer", module)
    return owner


def test_listening_passes_everything_through(bucket_class: type[Calls]) -> None:
    """Arguments and result are the original's; a reduction under way is not announced again."""
    original = vars(bucket_class)["start_grad_sync"]
    heard: list[Any] = []
    ears = [ear for _ in range(2) for ear in megatron_sync.listen(heard.append, [])]
    bucket = bucket_class()
    assert bucket.start_grad_sync(1, force_all_reduce=True) == "done"
    assert bucket.calls == [((1,), {"force_all_reduce": True})]
    assert heard == [bucket, bucket]
    bucket.communication_handle = object()
    bucket.start_grad_sync()
    assert len(heard) == 2
    ears[0].remove()
    ears[0].remove()
    assert vars(bucket_class)["start_grad_sync"] is not original
    ears[1].remove()
    assert vars(bucket_class)["start_grad_sync"] is original


def test_a_later_wrapper_survives_ours(bucket_class: type[Calls]) -> None:
    """Who wrapped the method after us keeps working when we go, and we do not come back through it."""
    heard: list[Any] = []
    (ear,) = megatron_sync.listen(heard.append, [])
    ours = vars(bucket_class)["start_grad_sync"]
    theirs: list[str] = []

    def wrapper(self: Any) -> Any:
        theirs.append("theirs")
        return ours(self)

    bucket_class.start_grad_sync = wrapper  # type: ignore[method-assign,assignment]
    ear.remove()
    bucket_class().start_grad_sync()
    assert (theirs, heard) == (["theirs"], [])
    (again,) = megatron_sync.listen(heard.append, [])
    bucket_class().start_grad_sync()
    assert len(theirs) == 2
    assert len(heard) == 1
    again.remove()


def test_shards_of_a_group_of_two_precisions() -> None:
    """A group that has both fp32 and 16-bit parameters counts them in two orders; each keeps its own state."""
    narrow, wide = torch.zeros(4, dtype=torch.bfloat16), torch.zeros(6)
    copy, shard = torch.zeros(3), wide[2:]
    ranges = {
        narrow: {"param": types.SimpleNamespace(start=1, end=4)},
        wide: {"param": types.SimpleNamespace(start=2, end=6)},
    }
    state = {copy: {"exp_avg": torch.full((3,), 1.0)}, shard: {"exp_avg": torch.full((4,), 2.0)}}
    optimizer = types.SimpleNamespace(
        gbuf_ranges=[
            {"first": [{"param_map": {narrow: ranges[narrow]}}]},
            {"second": [{"param_map": {wide: ranges[wide]}}]},
        ],
        model_float16_groups=[[narrow]],
        shard_float16_groups=[[narrow[1:]]],
        shard_fp32_from_float16_groups=[[copy]],
        model_fp32_groups=[[wide]],
        shard_fp32_groups=[[shard]],
        optimizer=types.SimpleNamespace(state=state),
    )
    held = holdings(optimizer)
    assert is_sharded(optimizer)
    assert held[id(narrow)].span == (1, 4)
    assert held[id(narrow)].state()["exp_avg"][0] == 1
    assert held[id(wide)].part(torch.arange(6)).tolist() == [2, 3, 4, 5]
    assert held[id(wide)].state()["exp_avg"][0] == 2
