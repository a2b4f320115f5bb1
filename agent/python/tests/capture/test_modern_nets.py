"""`trainmon compare` of captures of modern nets: rounding accuses none, and what is planted is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import compared
from support.modern_nets import NETS, Run, capture

#: Faults by net: what, and in which module it is.
FAULTS = [
    Run("grouped", fault="bfloat16", module="b.0.m.down"),
    Run("grouped", fault="eps", module="b.1.n2"),
    Run("grouped", fault="scale", module="b.1.a"),
    Run("fused", fault="bfloat16", module="b.1.a.qkv"),
    Run("fused", fault="eps", module="b.0.n1"),
    Run("fused", fault="scale", module="b.0.a"),
    Run("latent", fault="weight", module="b.1.m.gate"),
    Run("latent", fault="bfloat16", module="b.1.a.up"),
    Run("latent", fault="scale", module="b.0.a"),
    Run("scan", fault="weight", module="b.0.a.bc"),
    Run("scan", fault="bfloat16", module="b.1.a.dt"),
    Run("scan", fault="labels"),
]


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("goldens")
    for net in NETS:
        capture(place / net, Run(net))
    return {net: place / net for net in NETS}


@pytest.mark.parametrize("net", NETS)
def test_another_order_of_summing_is_rounding(net: str, goldens: dict[str, Path], tmp_path: Path) -> None:
    capture(tmp_path / "target", Run(net, other_order=True))
    code, answer = compared(tmp_path / "target", goldens[net])
    assert (code, answer["verdict"]) == (0, "rounding"), answer["sentence"]


@pytest.mark.parametrize("other_order", [False, True], ids=["alone", "over rounding"])
@pytest.mark.parametrize("fault", FAULTS, ids=[f"{run.net}, {run.fault} {run.module}" for run in FAULTS])
def test_a_fault_is_named_where_it_is(fault: Run, other_order: bool, goldens: dict[str, Path], tmp_path: Path) -> None:
    capture(tmp_path / "target", Run(fault.net, other_order, fault.fault, fault.module))
    code, answer = compared(tmp_path / "target", goldens[fault.net])
    assert (code, answer["verdict"]) == (1, "parts"), answer["sentence"]
    if fault.fault == "labels":
        # The call that moves the labels is the target's alone; the loss is where it shows.
        assert answer["operator"] == "Tensor.roll.0.forward" and answer["kind"] == "target_only", answer["sentence"]
        assert "cross_entropy" in answer["sentence"], answer["sentence"]
    else:
        # An operator of a module, or the module itself.
        module = answer["module"] or ""
        assert module == fault.module or module.startswith(fault.module + "."), answer["sentence"]
