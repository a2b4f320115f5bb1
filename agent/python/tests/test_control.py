"""Live control of PyTorch trainings: what is measured follows at one step; the budget thins out visibly."""

from __future__ import annotations

from pathlib import Path

import torch

import trainmon
from support import control, runs, tiny


def test_targets_modules_and_kinds_follow_at_one_step(tmp_path: Path) -> None:
    doors = tmp_path / "control"
    config = {
        "wg_distribution": True,
        "ops": ["norm"],
        "targets": {"layers.0": {}},
        "output_dir": str(tmp_path / "out"),
        "control": {"directory": str(doors)},
        "queue_steps": 1024,
    }
    net = tiny.model()
    optimizer = tiny.optimizer_of(net)
    watch = trainmon.watch(net, optimizer, config=config)
    orders = {
        2: {"targets": ["layers.1.fc1", "head"], "kinds": {"activations": True, "param": True}},
        5: {"targets": [], "ops": ["max"], "kinds": {"weight_grad": False, "activations": False}},
    }
    for step in range(9):
        if step in orders:
            assert control.order(doors, "/set", orders[step]) == step + 1
        optimizer.zero_grad()
        tiny.loss_of(net, step, 0).backward()
        optimizer.step()
    report = watch.close()
    books = watch.monitor.books()
    assert books["lost"] == 0 and books["observed"] == books["not_sampled"] + books["offered"], report
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
    net = tiny.model()
    optimizer = tiny.optimizer_of(net)
    before = [one.detach().clone() for one in net.parameters()]
    with trainmon.watch(net, optimizer, config=config) as watch:
        for step in range(30):
            optimizer.zero_grad()
            tiny.loss_of(net, step, 0).backward()
            optimizer.step()
    books = watch.monitor.books()
    assert books["lost"] == 0 and books["observed"] == books["not_sampled"] + books["offered"]
    assert books["not_sampled"] > 0
    run = runs.run_directory(tmp_path, 0)
    lines = runs.steps(run)
    ratios = [float(line["sampling_ratio"]) for line in lines]
    assert ratios[0] == 1 and ratios[-1] == 1 / 256
    assert [line["grad_norm"] == "nan" for line in lines] == [ratio < 1 for ratio in ratios]
    for kind in ("grad_unreduced", "update", "mg_direction"):
        file = "other" if kind == "mg_direction" else kind
        steps = {int(row["step"]) for row in runs.rows(run, file)}
        assert steps == {int(row["step"]) for row in runs.rows(run, "grad_reduced")}, kind
    reference = tiny.model()
    assert all(torch.equal(one, two) for one, two in zip(before, reference.parameters(), strict=True))
