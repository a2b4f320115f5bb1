"""DeepSpeed on two CPU ranks: every stage shows what a training without a framework gives."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
import torch

from support import bits, runs, tiny
from support.ranks import run_ranks

pytest.importorskip("deepspeed", reason="deepspeed is not installed")

#: So many steps are held against the reference; all are compared with those of an unwatched training.
RANKS, STEPS, CLIP = 2, 3, 0.5

FP32 = [
    "0,fp32,1", "0,fp32,2,none", "1,fp32,1", "1,fp32,2,mbs", "2,fp32,1,module", "2,fp32,2,small", "2,fp32,1,offload",
    "3,fp32,1", "3,fp32,2,small", "3,fp32,1,offload",
]  # fmt: skip
NARROW = ["0,bf16,1,none", "1,bf16,2", "1,bf16acc,2", "2,bf16,1,small", "3,bf16,1"]
FP16 = ["1,fp16,1", "3,fp16,1"]
STRANGE = "1,fp32,1,strange"
EACH = ["2,fp32,1,each", "3,fp32,1,each"]
BROKEN = ["0,fp32,1,fail", "1,fp32,1,fail", "2,bf16,1,fail", "3,fp32,2,fail"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases in one launch; the script itself compares the training with the unwatched one, bit by bit."""
    place = tmp_path_factory.mktemp("deepspeed")
    run_ranks("deepspeed_train.py", RANKS, place, *FP32, *NARROW, *FP16, STRANGE, *EACH, *BROKEN, timeout=900)
    return place


Pieces = dict[str, list[runs.Row]]


def pieces(output: Path, case: str, kind: str, step: int, micro_step: int | None = None) -> Pieces:
    """The ranks' rows of each parameter."""
    found: Pieces = {}
    for rank in range(RANKS):
        rows = rows_of(runs.run_directory(output / case, rank), kind)
        for name, row in runs.by_name(rows, step, micro_step).items():
            found.setdefault(name, []).append(row)
    return found


@functools.cache
def rows_of(directory: Path, kind: str) -> list[runs.Row]:
    return runs.rows(directory, kind)


def elements(row: runs.Row) -> int:
    return math.prod(int(one) for one in row["shape"].strip("[]").split(",") if one.strip())


def assert_parts_show(rows: list[runs.Row], tensor: torch.Tensor, what: str, relative: float = 1e-4) -> None:
    """The ranks' rows are of parts that make up this tensor."""
    assert sum(map(elements, rows)) == tensor.numel(), f"{what}: {[row['shape'] for row in rows]}"
    whole = {
        "name": rows[0]["name"],
        "norm": math.sqrt(sum(float(row["norm"]) ** 2 for row in rows)),
        "min": min(float(row["min"]) for row in rows),
        "max": max(float(row["max"]) for row in rows),
        "mean": sum(float(row["mean"]) * elements(row) for row in rows) / tensor.numel(),
    }
    runs.assert_shows({key: str(value) for key, value in whole.items()}, tensor, relative=relative, what=what)


def assert_each_shows(rows: list[runs.Row], tensor: torch.Tensor, what: str, relative: float = 1e-4) -> None:
    """Every rank's row shows the whole tensor."""
    assert len(rows) == RANKS, what
    for row in rows:
        assert elements(row) == tensor.numel(), what
        runs.assert_shows(row, tensor, relative=relative, what=what)


def own_gradients(
    before: dict[str, torch.Tensor], step: int, rank: int, micro: int, of: int
) -> dict[str, torch.Tensor]:
    """What one micro-batch alone gives."""
    net = tiny.model()
    net.load_state_dict(before)
    tiny.loss_of(net, step, rank, micro, of).backward()
    return {name: one.grad for name, one in net.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("case", FP32)
def test_every_value_is_the_references(output: Path, case: str) -> None:
    stage, _, micro_batches, *options = case.split(",")
    is_sharded = stage != "0"
    of = int(micro_batches)
    check = assert_parts_show if is_sharded else assert_each_shows
    values = assert_parts_show if stage == "3" else assert_each_shows
    reference = tiny.reference(RANKS, STEPS, micro_batches=of, clip=CLIP)
    last_moments: dict[str, dict[str, torch.Tensor]] = {}
    for number, step in enumerate(reference):
        reduced = pieces(output, case, "grad_reduced", number)
        origin, updated = (pieces(output, case, kind, number) for kind in ("param_origin", "param_updated"))
        assert reduced.keys() == step.mean.keys()
        for name, mean in step.mean.items():
            check(reduced[name], mean, f"{case} step {number} grad_reduced")
            values(origin[name], step.before[name], f"{case} step {number} param_origin")
            values(updated[name], step.after[name], f"{case} step {number} param_updated")
        for kind, moments in last_moments.items():
            shown = pieces(output, case, kind, number)
            for name, moment in moments.items():
                check(shown[name], moment, f"{case} step {number} {kind}")
        last_moments = {"exp_avg": step.exp_avg, "exp_avg_sq": step.exp_avg_sq}
        for rank in range(RANKS):
            directory = runs.run_directory(output / case, rank)
            shown = rows_of(directory, "grad_unreduced")
            for micro in range(of) if "mbs" in options else [of - 1]:
                own = own_gradients(step.before, number, rank, micro, of)
                rows = runs.by_name(shown, number, micro if "mbs" in options else None)
                assert rows.keys() == own.keys()
                for name, row in rows.items():
                    runs.assert_shows(row, own[name], relative=1e-4, what=f"{case} local")
            line = runs.steps(directory)[number]
            assert float(line["grad_norm"]) == pytest.approx(step.norm, rel=1e-4), f"{case} step {number}"
            assert float(line["loss"]) == pytest.approx(step.loss[rank], rel=1e-5), f"{case} step {number}"
            if stage != "0":
                assert float(line["framework_grad_norm"]) == pytest.approx(step.norm, rel=1e-4)


@pytest.mark.parametrize("case", NARROW)
def test_narrow_gradients_are_deepspeeds_own(output: Path, case: str) -> None:
    """`safe_get_full_grad`, a collective that a test may call, is the reference."""
    saved = torch.load(output / f"{case}-rank0.pt")
    is_whole = case.startswith("0") or "bf16acc" in case
    check = assert_each_shows if is_whole else assert_parts_show
    for number in range(STEPS):
        reduced = pieces(output, case, "grad_reduced", number)
        assert len(reduced) == len(tiny.model().state_dict())
        for name, rows in reduced.items():
            check(rows, saved["gradients"][f"{number}:{name}"], f"{case} step {number}")
        for rank in range(RANKS):
            line = runs.steps(runs.run_directory(output / case, rank))[number]
            assert float(line["framework_grad_norm"]) == pytest.approx(saved["norms"][number], rel=1e-6)
            assert float(line["grad_norm"]) == pytest.approx(saved["norms"][number], rel=1e-3), f"{case} step {number}"


@pytest.mark.parametrize("case", FP16)
def test_a_step_that_overflows_is_left_out_and_the_scale_is_undone(output: Path, case: str) -> None:
    saved = torch.load(output / f"{case}-rank0.pt")
    assert math.isinf(saved["norms"][0])
    # The scale starts at 2**16, which overflows, and is halved.
    for number in range(STEPS - 1):
        reduced = pieces(output, case, "grad_reduced", number)
        assert len(reduced) == len(tiny.model().state_dict())
        for name, rows in reduced.items():
            assert_parts_show(rows, saved["gradients"][f"{number + 1}:{name}"] / 2**15, f"{case} step {number}")
        for rank in range(RANKS):
            lines = runs.steps(runs.run_directory(output / case, rank))
            assert len(lines) == bits.STEPS - 1
            assert sum(int(line["skipped_steps"]) for line in lines) == 1
            for name in ("framework_grad_norm", "grad_norm"):
                assert float(lines[number][name]) == pytest.approx(saved["norms"][number + 1], rel=1e-3)
            # Scaled in 16 bits it is infinite: what it was before is not known.
            assert lines[number]["loss"] in ("", "nan")


def test_an_unknown_version_costs_what_is_not_found(output: Path) -> None:
    for rank, own in enumerate(next(tiny.reference(RANKS, 1)).local):
        directory = runs.run_directory(output / STRANGE, rank)
        shown = runs.by_name(runs.rows(directory, "grad_unreduced"), 0)
        assert shown.keys() == own.keys()
        assert not runs.rows(directory, "grad_reduced")
        assert runs.steps(directory)[0]["grad_norm"] == ""


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_hook_does_not_reach_the_training(output: Path, case: str) -> None:
    # The script compared the training with the unwatched one before it wrote this.
    for rank in range(RANKS):
        assert (output / f"{case}-rank{rank}.pt").exists()
        assert not runs.rows(runs.run_directory(output / case, rank), "grad_reduced")
