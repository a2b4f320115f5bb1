"""`trainmon compare` of monitored runs: rounding accuses no run; what is planted is named, and what it looks like."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from support.command import compared
from support.noisy_trainings import Training, train

#: What is planted, and the kind of the series that must come first.
FAULTS = {"nan": "run", "gradient": "grad_reduced", "bias": "param_origin"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module", params=["fused", "multihead", "encoder"])
def golden(request: pytest.FixtureRequest, place: Path) -> tuple[str, Path]:
    path = place / f"golden_{request.param}"
    train(path, Training(request.param, steps=48))
    return request.param, path


@pytest.mark.parametrize("activations", [False, True], ids=["gradients", "activations"])
def test_another_order_of_summing_parts_no_runs(place: Path, golden: tuple[str, Path], activations: bool) -> None:
    block, path = golden
    if activations:
        path = place / f"golden_{block}_activations"
        train(path, Training(block, steps=48, activations=True))
    target = place / f"clean_{block}_{activations}"
    train(target, Training(block, steps=48, other_order=True, activations=activations))
    code, answer = compared(target, path)
    assert answer["verdict"]["answer"] == "no_divergence", answer["verdict"]
    assert code == 0


@pytest.mark.parametrize(("fault", "kind"), FAULTS.items())
def test_a_fault_over_another_order_of_summing_comes_first(
    place: Path, golden: tuple[str, Path], fault: str, kind: str
) -> None:
    block, path = golden
    target = place / f"{fault}_{block}"
    train(target, Training(block, steps=20, other_order=True, fault=fault, at=13))
    code, answer = compared(target, path)
    first = answer["first"]
    # A parameter that is moved before the optimizer's step is seen behind it, or as the next step begins.
    steps = (13, 14) if fault == "bias" else (13,)
    assert code == 1 and first["step"] in steps, answer["verdict"]
    assert first["kind"] == kind or (fault == "bias" and first["kind"] == "param_updated"), first


#: By case: the golden run, the target, and what must be said of them.
LOOKS = {
    "sum": (
        Training(),
        Training(fault="sum", micro_batches=2),
        "a mean or a sum, loss scale",
    ),
    "sum with activations": (
        Training(activations=True),
        Training(fault="sum", micro_batches=2, activations=True),
        "not divided by their number",
    ),
    "schedule": (Training(), Training(fault="schedule twice"), "its scheduler is stepped twice a step"),
    "second beta": (Training(), Training(optimizer={"betas": (0.9, 0.999)}), "second beta of the optimizer"),
    "first beta": (Training(), Training(optimizer={"betas": (0.8, 0.95)}), "first beta of the optimizer"),
    "groups": (Training(), Training(fault="groups"), "parameter groups"),
    "scale": (Training(), Training(fault="scale", at=6), "1/4 of the baseline's after reduction"),
    "eval": (
        Training(activations=True, dropout=True),
        Training(fault="eval", at=8, activations=True, dropout=True),
        "Is `model.train()` missing?",
    ),
    "labels": (Training(activations=True), Training(fault="labels", at=5, activations=True), "compare the labels"),
}


@pytest.mark.parametrize("case", LOOKS)
def test_what_a_divergence_looks_like_is_said_in_words(place: Path, case: str) -> None:
    golden, target, words = LOOKS[case]
    paths = [place / f"{side} of {case}" for side in ("golden", "target")]
    for path, how in zip(paths, (golden, target), strict=True):
        train(path, how)
    code, answer = compared(paths[1], paths[0])
    assert code == 1
    assert words in " ".join(answer["verdict"]["reasons"]), answer["verdict"]


#: What is done otherwise when a training goes on, and what must be said.
RESUMED = {
    "no state": "the optimizer's state was probably not loaded",
    "data anew": "from step 12 on, the target has the data of the baseline's step 0",
    "untied": "is it tied to `e.weight`",
}


@pytest.mark.parametrize("case", ["well", *RESUMED])
def test_what_went_wrong_when_a_training_was_resumed_is_said_in_words(place: Path, case: str) -> None:
    golden = place / f"golden of {case}"
    tied = case == "untied"
    train(golden, Training(tied=tied, activations=True))
    state = copy.deepcopy(train(place / f"before {case}", Training(tied=tied, steps=12)))
    if tied:
        # Of two weights only one has a state.
        state.pop("optimizer")
    how = Training(steps=12, first=12, fault="no state" if tied else case, resumes=state, activations=True)
    target = place / f"resumed {case}"
    train(target, how)
    code, answer = compared(target, golden)
    if case == "well":
        assert code == 0 and answer["verdict"]["answer"] == "no_divergence", answer["verdict"]
    else:
        assert code == 1
        assert RESUMED[case] in " ".join(answer["verdict"]["reasons"]), answer["verdict"]


@pytest.mark.parametrize("activations", [False, True], ids=["gradients", "activations"])
def test_another_division_into_micro_batches_is_no_other_data(place: Path, activations: bool) -> None:
    paths = [place / f"{side} micro-batches {activations}" for side in ("golden", "target")]
    train(paths[0], Training(activations=activations))
    train(paths[1], Training(activations=activations, micro_batches=2))
    code, answer = compared(paths[1], paths[0])
    assert code == 0 and answer["verdict"]["answer"] == "no_divergence", answer["verdict"]
    told = "activations and their gradients are not compared" in " ".join(answer["notes"])
    assert told == activations, answer["notes"]
