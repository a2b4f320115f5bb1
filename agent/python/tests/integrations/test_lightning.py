"""Lightning's Trainer: on one rank alone, on two under DDP, and sharded by fully_shard."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import trainmon
from support import bits, runs, tiny
from support.ranks import run_alone, run_ranks
from support.showing import assert_shows_reference

pytest.importorskip("lightning", reason="lightning is not installed")

#: So many steps are held against the reference; all are compared with those of an unwatched training.
STEPS, CLIP = 4, 0.5
WHOLE = ["ddp,1", "ddp,2", "ddp,1,value"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases in one launch; the script itself compares the training with the unwatched one, bit by bit."""
    place = tmp_path_factory.mktemp("lightning")
    cases = [*WHOLE, "shard,1", "ddp,1,two", "ddp,1,end", "ddp,1,each", "shard,1,each", "ddp,1,fail", "shard,1,fail"]
    run_ranks("lightning_train.py", 2, place, *cases, timeout=1200)
    return place


def reference_of(ranks: int, micro_batches: int = 1, *, clip: float | None = CLIP) -> list[tiny.Step]:
    return list(tiny.reference(ranks, STEPS, micro_batches=micro_batches, clip=clip))


@pytest.mark.parametrize("case", WHOLE[:2])
def test_every_value_is_the_references(output: Path, case: str) -> None:
    assert_shows_reference(output / case, reference_of(2, int(case.split(",")[1])), 2, "net.", steps=bits.STEPS)


def test_gradients_are_those_before_values_are_clipped(output: Path) -> None:
    mean = reference_of(2)[0].mean
    for rank in range(2):
        rows = runs.rows(runs.run_directory(output / "ddp,1,value", rank), "grad_reduced")
        for name, row in runs.by_name(rows, 0).items():
            runs.assert_shows(row, mean[name.removeprefix("net.")], relative=1e-4)


def test_shards_make_up_the_whole(output: Path) -> None:
    reference = reference_of(2, clip=None)
    directories = [runs.run_directory(output / "shard,1", rank) for rank in range(2)]
    for number, step in enumerate(reference):
        for directory in directories:
            assert float(runs.steps(directory)[number]["grad_norm"]) == pytest.approx(step.norm, rel=1e-4)
        for kind, tensors in (("grad_reduced", step.mean), ("param_updated", step.after)):
            shown = [runs.by_name(runs.rows(directory, kind), number) for directory in directories]
            for name, tensor in tensors.items():
                norms = [float(rows[f"net.{name}"]["norm"]) for rows in shown if f"net.{name}" in rows]
                assert math.hypot(*norms) == pytest.approx(float(tensor.norm()), rel=1e-4), f"{kind} {name}"
    for rank, directory in enumerate(directories):
        local = runs.by_name(runs.rows(directory, "grad_unreduced"), 0)
        for name, tensor in reference[0].local[rank].items():
            runs.assert_shows(local[f"net.{name}"], tensor, relative=1e-4)


def test_each_optimizer_has_its_own_run(output: Path) -> None:
    found = runs.rank_directories(output / "ddp,1,two", 0)
    names = [{row["name"] for row in runs.rows(directory, "grad_reduced")} for directory in found]
    names.sort(key=len)
    assert names[0] == {"net.head.weight"}
    assert len(names[1]) == 24
    assert all(name.startswith("net.layers.") for name in names[1])
    assert all(len(runs.steps(directory)) == bits.STEPS for directory in found)


def test_an_exception_of_the_script_ends_the_watch(output: Path) -> None:
    assert len(runs.steps(runs.run_directory(output / "ddp,1,end", 0))) == 2


@pytest.mark.parametrize("case", ["ddp,1,fail", "shard,1,fail"])
def test_a_broken_hook_does_not_reach_the_training(output: Path, case: str) -> None:
    assert not runs.rows(runs.run_directory(output / case, 0), "grad_reduced")


def test_alone_names_are_the_models(tmp_path: Path) -> None:
    run_alone("lightning_train.py", tmp_path, "auto,2")
    assert_shows_reference(tmp_path / "auto,2", reference_of(1, 2), 1, "net.", steps=bits.STEPS)


def test_an_alert_ends_the_fit_and_a_checkpoint_holds_what_was_usual(tmp_path: Path) -> None:
    run_alone("lightning_train.py", tmp_path, "auto,1,stop", "auto,1,checkpoint")
    lines = runs.steps(runs.run_directory(tmp_path / "auto,1,stop", 0))
    assert [int(line["step"]) for line in lines] == [0, 1, 2]
    found = {part.name: runs.findings(part) for part in (tmp_path / "auto,1,checkpoint").iterdir()}
    assert found == {"learns": [], "resumes": [12], "knows nothing": []}


def test_a_faulty_config_is_told_at_once() -> None:
    from trainmon.integrations.lightning import TrainmonCallback

    with pytest.raises(trainmon.ConfigError, match="wg_distribution"):
        TrainmonCallback({"wg_distributio": True})


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = "import importlib.util\nimportlib.util.find_spec = lambda name: None\nimport trainmon.integrations.lightning"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "hint: pip install lightning"


def test_the_callback_is_one_of_the_name_that_is_used() -> None:
    """`pytorch_lightning`'s trainer knows only its own callbacks; here a stand-in under that name."""
    code = (
        "import sys, types\nclass Callback: pass\n"
        "sys.modules['pytorch_lightning'] = other = types.ModuleType('pytorch_lightning')\nother.Callback = Callback\n"
        "from trainmon.integrations.lightning import TrainmonCallback\n"
        "assert issubclass(TrainmonCallback, Callback) and 'lightning' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
