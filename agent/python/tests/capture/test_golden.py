"""msprobe's recorded dumps, reproduced by running their programs under trainmon."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from support import dump_truth, dumps, golden
from support.dump_truth import Case, Truth
from trainmon.captures import operators

GOLDEN = golden.directory()
#: Programs of `dump-format`, and their arguments; OUT is where the dump goes.
FORMATS = {
    "debug_tensor": ("gen_debug.py", ["tensor"]),
    "dist_gloo": ("gen_dist.py", []),
    "mix_tensor_md5": ("gen_mix.py", ["OUT"]),
    "stats_L1_edge": ("gen_edge.py", ["OUT"]),
    "structure": ("gen_structure.py", ["L1"]),
    "xor_list_models": ("gen_xor.py", ["low", "xor"]),
}
CASES = [] if GOLDEN is None else sorted(path.name for path in (GOLDEN / "03_dump").iterdir())


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """Every program, run."""
    cases = {name: dump_truth.case_of(GOLDEN / "03_dump" / name) for name in CASES}
    cases |= {name: _case_of_format(name, program, words) for name, (program, words) in FORMATS.items()}
    return Truth(tmp_path_factory.mktemp("dumps"), cases)


def _case_of_format(name: str, program: str, arguments: list[str]) -> Case:
    def dump(directory: Path) -> Path:
        (found,) = (one for one in directory.iterdir() if one.is_dir())
        return found

    return Case(
        recorded=GOLDEN / "dump-format" / name,
        runs=None,
        job=lambda place: _job_of_format(place / name, program, arguments),
        dump=dump,
        config=lambda directory: json.loads(min(directory.glob("*.json")).read_text()),
    )


def _job_of_format(directory: Path, program: str, arguments: list[str]) -> dict:
    """The program writes below `/run`, starts its ranks itself, and may draw its numbers without a seed: it is run with
    another place, in ranks of ours, and with a seed."""
    directory.mkdir()
    path = GOLDEN / "dump-format" / program
    source = path.read_text().replace("/run/", f"{directory}/")
    starts_ranks = 'if __name__=="__main__":\n    mp.spawn(w,nprocs=2)'
    source = source.replace(starts_ranks, 'w(int(os.environ["RANK"]))').replace('MASTER_PORT="29511",', "")
    source = f"import torch; torch.manual_seed(20)\n{source}"
    words = [word.replace("OUT", str(directory / "dump")) for word in arguments]
    job = {"program": str(path), "source": source, "arguments": words, "directory": str(directory)}
    return {**job, "ranks": 2 if starts_ranks in path.read_text() else 1}


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_dump_of_an_older_msprobe_is_reproduced(name: str, truth: Truth) -> None:
    _assert_reproduced(name, truth)


def _assert_reproduced(name: str, truth: Truth) -> None:
    outcome = truth.outcome(name)
    print(f"{name}: {outcome.fields} fields, {outcome.close} within tolerance, {len(outcome.differing)} differing")
    for why, count in outcome.excused.items():
        print(f"  {count} deviations: {why}")
    assert not outcome.differing, outcome.differing[:5]
    assert outcome.fields > 0


def test_the_functions_are_those_that_msprobe_wraps() -> None:
    msprobe = pytest.importorskip("msprobe", reason="msprobe is not installed here")
    yaml = pytest.importorskip("yaml", reason="there is no reader of YAML here")
    listed = Path(msprobe.__file__).parent / "pytorch/dump/api_dump/support_wrap_ops.yaml"
    wrapped = yaml.safe_load(listed.read_text())
    ours = {"functional": operators.functional_names(), "tensor": operators.tensor_names()}
    ours["torch"] = [*operators.torch_names(), *(f"linalg.{name}" for name in operators.linalg_names())]
    owners = {"functional": torch.nn.functional, "tensor": torch.Tensor, "torch": torch}
    # `nn.GRU` calls the same object, and Python has no `__rdiv__` any more: `/` is `__rtruediv__`, which is the same.
    left_out = {"gru", "__rdiv__"}
    for group, owner in owners.items():
        theirs = {name for name in wrapped[group] if "." in name or hasattr(owner, name)}
        assert {name for name in ours[group] if "." in name or hasattr(owner, name)} == theirs - left_out


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_a_recorded_dump_is_reproduced(name: str, truth: Truth) -> None:
    _assert_reproduced(name, truth)


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_the_training_is_the_same_with_a_capture(name: str, truth: Truth) -> None:
    recorded = truth.losses(name)
    assert recorded
    for file, text in recorded.items():
        assert json.loads((truth.ran(name) / file).read_text()) == json.loads(text)


@pytest.mark.parametrize(
    ("path", "ours", "theirs", "is_one"),
    [
        (("data", "a", "output", "0", "Max"), 1.0, 1.0000001, True),
        (("data", "a", "output", "0", "md5"), "0a", "0b", True),
        (("files", "a.pt"), "other bits", "its bits", True),
        (("data", "a", "output", "0", "shape", "0"), 2, 3, False),
        (("data", "a", "output", "0", "Max"), None, 1.0, False),
        (("data", "a", "output", "0", "md5"), dumps.ABSENT, "0b", False),
        (("files", "a.pt"), dumps.ABSENT, "a.pt", False),
        (("data", "(order)"), ["a", "b"], ["b", "a"], False),
    ],
)
def test_only_numbers_checksums_and_elements_are_digits(
    path: tuple, ours: object, theirs: object, is_one: bool
) -> None:
    assert dump_truth.is_of_digits(dumps.Difference("dump.json", path, ours, theirs, None)) == is_one


def test_every_field_is_compared() -> None:
    """The comparison sees a changed number, a missing entry, another order."""
    theirs = {"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0, "Mean": 0.5}]}, "b": {}}}
    changed = (
        ({"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0000001, "Mean": 0.5}]}, "b": {}}}, 1),
        ({"data": {"a": {"output": [{"dtype": "torch.float32", "Max": 1.0, "Mean": 0.6}]}, "b": {}}}, 1),
        ({"data": {"b": {}, "a": theirs["data"]["a"]}}, 1),
        ({"data": {"a": {"output": []}, "b": {}}}, 1),
        ({"data": {"a": theirs["data"]["a"]}}, 1),
    )
    for ours, count in changed:
        outcome = dumps.Outcome()
        assert len(list(dumps.differences("dump.json", (), ours, theirs, None, outcome))) == count
    assert Counter() == dumps.Outcome().excused
