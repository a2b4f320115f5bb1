"""Live control of PyTorch trainings: what is measured follows at one step; the budget thins out visibly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import trainmon
from support import control, runs, tiny
from support.ranks import run_ranks
from support.waiting import eventually
from trainmon.frameworks import live_watches


def test_targets_modules_and_kinds_follow_at_one_step(tmp_path: Path) -> None:
    addresses = tmp_path / "control"
    config = {
        "wg_distribution": True,
        "ops": ["norm"],
        "targets": {"layers.0": {}},
        "output_dir": str(tmp_path / "out"),
        "control": {"directory": str(addresses)},
        "queue_steps": 1024,
    }
    net, optimizer = tiny.training()
    watch = trainmon.watch(net, optimizer, config=config)
    orders = {
        2: {"targets": ["layers.1.fc1", "head"], "kinds": {"activations": True, "param": True}},
        5: {"targets": [], "ops": ["max"], "kinds": {"weight_grad": False, "activations": False}},
    }
    for step in range(9):
        if step in orders:
            assert control.order(addresses, "/set", orders[step]) == step + 1
        optimizer.zero_grad()
        tiny.loss_of(net, step, 0).backward()
        optimizer.step()
    report = watch.close()
    counts = watch.monitor.counts()
    assert counts["lost"] == 0 and counts["observed"] == counts["not_sampled"] + counts["offered"], report
    run = runs.run_directory(tmp_path / "out", 0)
    every = [name for name, _ in net.named_parameters()]
    some = [name for name in every if name.startswith(("layers.1.fc1", "head"))]
    first = [name for name in every if name.startswith("layers.0")]
    for step in range(9):
        gradients = first if step < 3 else some if step < 6 else []
        parameters = [] if step < 3 else some if step < 6 else every
        ends = ["head.input", "head.output", "layers.1.fc1.input", "layers.1.fc1.output"] if 3 <= step < 6 else []
        for kind, names in [
            ("grad_unreduced", gradients),
            ("grad_reduced", gradients),
            ("param_origin", parameters),
            ("actv", ends),
        ]:
            found = [row["name"] for row in runs.rows(run, kind) if int(row["step"]) == step]
            assert sorted(found) == sorted(names), f"{kind} in step {step}"
    assert list(runs.rows(run, "param_origin")[-1]) == ["vpp_stage", "name", "step", "max", "shape", "dtype"]


def test_a_budget_thins_out_visibly_and_leaves_the_norm_unknown(tmp_path: Path) -> None:
    config = {
        "wg_distribution": True,
        "mv_distribution": True,
        "update": True,
        "mg_direction": True,
        "ops": ["norm"],
        "output_dir": str(tmp_path),
        "overhead_budget": 0.000001,
        "queue_steps": 1024,
        "step_count_per_record": 1000,
    }
    net, optimizer = tiny.training()
    before = [one.detach().clone() for one in net.parameters()]
    with trainmon.watch(net, optimizer, config=config) as watch:
        tiny.train(net, optimizer, 30)
    counts = watch.monitor.counts()
    assert counts["lost"] == 0 and counts["observed"] == counts["not_sampled"] + counts["offered"]
    assert counts["not_sampled"] > 0
    run = runs.run_directory(tmp_path, 0)
    lines = runs.steps(run)
    ratios = [float(line["sampling_ratio"]) for line in lines]
    assert ratios[0] == 1 and ratios[-1] == 1 / 256
    assert [line["grad_norm"] == "" for line in lines] == [ratio < 1 for ratio in ratios]
    for kind in ("grad_unreduced", "update", "mg_direction"):
        file = "other" if kind == "mg_direction" else kind
        steps = {int(row["step"]) for row in runs.rows(run, file)}
        assert steps == {int(row["step"]) for row in runs.rows(run, "grad_reduced")}, kind
    reference = tiny.model()
    assert all(torch.equal(one, two) for one, two in zip(before, reference.parameters(), strict=True))


def test_two_ranks_switch_at_the_step_that_the_status_names(tmp_path: Path) -> None:
    run_ranks("control_ranks.py", 2, tmp_path)
    answer = json.loads((tmp_path / "answer.json").read_text())
    switch, steps = answer["step"], answer["steps"]
    assert 0 < switch < steps
    every = [name for name, _ in tiny.model().named_parameters()]
    first = {name for name in every if name.startswith("layers.0.")}
    some = {name for name in every if name.startswith("layers.1.fc1.")}
    assert len(first) == 12 and len(some) == 2
    before, after = set(range(switch)), set(range(switch, steps))
    for rank in range(2):
        run = runs.run_directory(tmp_path, rank)
        assert [int(line["step"]) for line in runs.steps(run)] == list(range(steps))
        for kind, in_steps, names in [
            ("grad_unreduced", before, first),
            ("grad_reduced", before, first),
            ("param_origin", after, some),
            ("exp_avg", after, some),
        ]:
            found = {(int(row["step"]), row["name"]) for row in runs.rows(run, kind)}
            assert found == {(step, name) for step in in_steps for name in names}, f"{kind} of rank {rank}"


def test_statistics_that_can_be_pulled_are_those_that_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, file = tmp_path / "control", tmp_path / "monitor.json"
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    settings = {"wg_distribution": True, "ops": ["norm"], "control": {"directory": str(addresses)}, "targets": {}}
    file.write_text(json.dumps(settings))
    net, optimizer = tiny.training()
    monitor = trainmon.TrainerMon(file, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    (watch,) = live_watches.watches()
    orders: dict[int, dict[str, Any]] = {
        1: {"ops": ["max", "min"]},
        3: {"kinds": {"weight_grad": False, "param": True}},
        5: {"ops": ["mean"], "kinds": {"weight_grad": True, "param": False}},
    }
    shown = {}
    for step in range(8):
        if step in orders:
            # It takes effect when the next step begins: nothing is measured otherwise before.
            assert control.order(addresses, "/set", orders[step]) == step + 1
        optimizer.zero_grad()
        tiny.loss_of(net, step, 0).backward()
        reduced, unreduced = monitor.generate_wgrad_metrics()
        parameters = watch.monitor.latest(trainmon.common.kinds.Kind.PARAM_ORIGIN)
        shown[step] = [
            list(monitor.ops),
            sorted(next(iter(unreduced.values()), {})),
            sorted(next(iter(reduced.values()), {})),
            sorted(parameters[0][3]) if parameters else [],
        ]
        optimizer.step()
    monitor.close()
    none: list[str] = []
    both = ["max", "min"]
    # What is measured; of local gradients in this step; of aggregated ones and of parameters in the one before, where
    # it is still asked for.
    assert shown == {
        0: [["norm"], ["norm"], none, none],
        1: [["norm"], ["norm"], ["norm"], none],
        2: [both, both, none, none],
        3: [both, both, both, none],
        4: [both, none, none, none],
        5: [both, none, none, both],
        6: [["mean"], ["mean"], none, none],
        7: [["mean"], ["mean"], ["mean"], none],
    }


@pytest.mark.parametrize("given", ["output_dir", "keys"])
def test_the_dynamic_mode_follows_the_file_whatever_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    file, out = tmp_path / "monitor.json", tmp_path / "out"

    def says(statistic: str, *, is_on: bool) -> None:
        written = file.with_suffix(".new")
        written.write_text(json.dumps({"dynamic_on": is_on, "wg_distribution": True, "ops": [statistic]}))
        written.rename(file)

    says("max", is_on=False)
    keys: dict[str, Any] = {"targets": {"head": {}}, "output_dir": out} if given == "keys" else {"output_dir": out}
    net, optimizer = tiny.training()
    watch = trainmon.watch(net, optimizer, config=file, name="mine", quiet=True, **keys)

    def train(step: int) -> None:
        optimizer.zero_grad()
        tiny.loss_of(net, step, 0).backward()
        optimizer.step()

    train(0)
    version = watch.monitor.plan_version
    says("norm", is_on=True)
    steps = 1

    def is_followed() -> bool:
        nonlocal steps
        train(steps)
        steps += 1
        return watch.monitor.plan_version != version

    eventually(is_followed)
    train(steps)
    watch.close()
    rows = runs.rows(runs.run_directory(out, 0), "grad_reduced")
    assert rows and all(list(row) == ["vpp_stage", "name", "step", "norm", "shape", "dtype"] for row in rows)
    names = {name for name, _ in net.named_parameters()}
    aimed = {name for name in names if name.startswith("head")} if given == "keys" else names
    assert aimed and {row["name"] for row in rows} == aimed


def test_readings_that_can_be_pulled_have_the_statistics_of_their_kind(tmp_path: Path) -> None:
    monitors = {
        "weight_grad": {"enabled": True, "ops": ["norm", "max"]},
        "param": {"enabled": True, "ops": ["mean"]},
        "module": {"enabled": False},
    }
    net, optimizer = tiny.training()
    with trainmon.watch(net, optimizer, config={"output_dir": str(tmp_path), "monitors": monitors}) as watch:
        tiny.loss_of(net, 0, 0).backward()
        optimizer.step()
        assert watch.monitor.ops() == ["norm", "max", "mean"]
        kinds = {"grad_reduced": {"norm", "max"}, "param_updated": {"mean"}}
        for kind, statistics in kinds.items():
            for name, _, _, values in watch.monitor.latest(trainmon._trainmon.KINDS.index(kind)):
                assert set(values) == statistics, f"{kind} of {name}"
