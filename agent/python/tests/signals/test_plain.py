"""Plain torch: every signal against torch's own numbers, and the loops people really write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import trainmon
from support import configs, runs, tiny
from support.torch_inside import hooks_of, hooks_of_optimizer, hooks_of_tensor
from trainmon.hooks import patches

OPS = configs.OPS
EVERYTHING: dict[str, Any] = {"ops": OPS, **configs.EVERYTHING}
GRADIENTS: dict[str, Any] = {"ops": OPS, "wg_distribution": True}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What monitors say."""
    heard: list[str] = []
    from trainmon.watches import startup

    original = startup.start_monitor

    def listening(config: Any, **options: Any) -> Any:
        return original(config, listener=lambda severity, message, hint: heard.append(message), **options)

    monkeypatch.setattr(startup, "start_monitor", listening)
    return heard


def watched(tmp_path: Path, net: nn.Module, optimizer: Any, config: dict[str, Any], **options: Any) -> trainmon.Watch:
    return trainmon.watch(net, optimizer, config=config, output_dir=str(tmp_path), **options)


def test_every_signal_is_what_torch_says(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, {**EVERYTHING, "monitor_mbs_grad": True}, grad_acc_steps=2) as watch:
        tiny.train(net, optimizer, 3, micro_batches=2, clip=0.5)
        report = watch.close()
    assert "0 dropped" in report
    run = runs.run_directory(tmp_path, 0)
    truth = list(tiny.reference(1, 3, micro_batches=2, clip=0.5))
    kinds = {kind: runs.rows(run, kind) for kind in ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq")}
    kinds |= {kind: runs.rows(run, kind) for kind in ("param_origin", "param_updated", "other", "update_ratio")}
    lines = runs.steps(run)
    for number, step in enumerate(truth):
        for name, mean in step.mean.items():
            runs.assert_shows(runs.by_name(kinds["grad_unreduced"], number, 1)[name], step.local[0][name])
            runs.assert_shows(runs.by_name(kinds["grad_reduced"], number)[name], mean, what="before clipping")
            runs.assert_shows(runs.by_name(kinds["param_origin"], number)[name], step.before[name])
            runs.assert_shows(runs.by_name(kinds["param_updated"], number)[name], step.after[name])
            ratio = (step.after[name].double() - step.before[name].double()).norm() / step.before[name].double().norm()
            row = runs.by_name(kinds["update_ratio"], number)[name]
            assert float(row["update_ratio"]) == pytest.approx(float(ratio), rel=1e-3)
            if number == 0:
                continue
            earlier = truth[number - 1]
            runs.assert_shows(runs.by_name(kinds["exp_avg"], number)[name], earlier.exp_avg[name])
            runs.assert_shows(runs.by_name(kinds["exp_avg_sq"], number)[name], earlier.exp_avg_sq[name])
        line = lines[number]
        assert float(line["grad_norm"]) == pytest.approx(step.norm, rel=1e-5)
        assert float(line["framework_grad_norm"]) == pytest.approx(step.norm, rel=1e-5)
        assert float(line["grad_norm_ratio"]) == pytest.approx(1, abs=1e-5)
        assert float(line["learning_rate"]) == pytest.approx(1e-3)
    assert not runs.by_name(kinds["exp_avg"], 0), "the first step has no moments yet"


def test_the_first_micro_batch_shows_its_own_gradient(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, {**GRADIENTS, "monitor_mbs_grad": True}, grad_acc_steps=2):
        tiny.train(net, optimizer, 1, micro_batches=2)
    alone = tiny.model()
    tiny.loss_of(alone, 0, 0, 0, 2).backward()
    rows = runs.by_name(runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced"), 0, 0)
    for name, parameter in alone.named_parameters():
        assert parameter.grad is not None
        runs.assert_shows(rows[name], parameter.grad)


@pytest.mark.parametrize("compute", ["eager", "checkpointed"])
def test_training_is_the_same_to_the_bit(tmp_path: Path, compute: str) -> None:
    def run(watch: bool) -> tuple[list[float], list[torch.Tensor], torch.Tensor]:
        net = tiny.model()
        if compute == "checkpointed":
            for layer in net.layers:
                layer.register_forward_pre_hook(lambda *_: None)
                forward = layer.forward
                layer.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=True)  # type: ignore[method-assign]
        optimizer = tiny.optimizer_of(net)
        torch.manual_seed(3)
        if watch:
            with watched(tmp_path, net, optimizer, {**EVERYTHING, "monitor_mbs_grad": True}, grad_acc_steps=2):
                losses = tiny.train(net, optimizer, 20, micro_batches=2, clip=1.0)
        else:
            losses = tiny.train(net, optimizer, 20, micro_batches=2, clip=1.0)
        tensors = [one.detach() for one in net.parameters()]
        tensors += [one.grad for one in net.parameters() if one.grad is not None]
        tensors += [one for state in optimizer.state.values() for one in state.values()]
        return losses, tensors, torch.random.get_rng_state()

    with_us, without = run(True), run(False)
    assert with_us[0] == without[0]
    assert all(torch.equal(a, b) for a, b in zip(with_us[1], without[1], strict=True))
    assert torch.equal(with_us[2], without[2])


INNER: list[tuple[str, str]] = [
    ("trainmon.signals.gradients.Gradients", "measure_reduced"),
    ("trainmon.signals.gradients.Gradients", "take_norm"),
    ("trainmon.signals.gradients.Gradients", "begin_next_step"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "_measure_moments"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "_measure_values"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "_measure_directions"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "_keep_copies"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "_measure_updates"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "before"),
    ("trainmon.signals.optimizer_step.OptimizerStep", "after"),
    ("trainmon.signals.modules.Activations", "_called"),
    ("trainmon.signals.modules.Activations", "begin_next_step"),
    ("trainmon.device.measurer.Measurer", "measure"),
    ("trainmon.device.measurer.Measurer", "measure_each"),
    ("trainmon.device.measurer.Measurer", "collect"),
    ("trainmon.device.measurer.Measurer", "launch"),
    ("trainmon.signals.loss_scaler.LossScale", "in_backward"),
    ("trainmon.signals.loss_scaler.LossScale", "before_step"),
    ("trainmon.signals.loss_scaler.LossScale", "step_is_made"),
    ("trainmon.signals.loss_scaler.LossScale", "before_scaler_step"),
    ("trainmon.signals.loss_scaler.LossScale", "left_out"),
    ("trainmon.signals.loss_scaler.LossScale", "loss_is_scaled"),
    ("trainmon.signals.step_facts.Clipping", "concerns_us"),
    ("trainmon.signals.step_facts.StepFacts", "end_step"),
    ("trainmon.signals.step_facts.StepFacts", "tell"),
    ("trainmon.measurement.norm.GlobalNorm", "settle"),
    ("trainmon.frameworks.plain.Plain", "reduced"),
    ("trainmon.frameworks.plain.Plain", "moments"),
    ("trainmon.frameworks.plain.Plain", "attach_late_gradients"),
    ("trainmon.frameworks.plain.Plain", "detach"),
    ("trainmon.frameworks.plain.Plain", "__init__"),
    ("trainmon.frameworks.plain.Plain", "named_parameters"),
    ("trainmon.frameworks.plain.Plain", "attach_step"),
    ("trainmon.frameworks.plain.Plain", "exchange"),
    ("trainmon.frameworks.plain.Plain", "learning_rate"),
    ("trainmon.frameworks.plain.Plain", "mark_replicas"),
    ("trainmon.signals.modules.Activations", "attach"),
    ("trainmon.signals.micro_batches.MicroBatches", "were_added"),
    ("trainmon.signals.micro_batches.MicroBatches", "added"),
    ("trainmon.signals.micro_batches.MicroBatches", "learn"),
    ("trainmon.signals.micro_batches.MicroBatches", "begin_next_step"),
    ("trainmon.signals.new_parameters.NewParameters", "__init__"),
    ("trainmon.signals.new_parameters.NewParameters", "take_up"),
    ("trainmon.signals.new_parameters.NewParameters", "before_backward"),
]


@pytest.mark.parametrize(
    ("owner", "method"), INNER, ids=[f"{owner.rsplit('.', 1)[1]}.{method}" for owner, method in INNER]
)
def test_a_failure_inside_never_reaches_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], owner: str, method: str
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def run(watch: trainmon.Watch | None, net: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        losses = []
        for step in range(3):
            optimizer.zero_grad()
            loss = tiny.loss_of(net, step, 0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if watch is not None:
                watch.log(loss=loss.detach())
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
        return losses

    net = tiny.model()
    expected = run(None, net, tiny.optimizer_of(net))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    calls = []

    def broken(*_: Any, **__: Any) -> Any:
        calls.append(method)
        raise RuntimeError("injected")

    module, _, name = owner.rpartition(".")
    monkeypatch.setattr(getattr(__import__(module, fromlist=[name]), name), method, broken)
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, EVERYTHING) as watch:
        assert run(watch, net, optimizer) == expected
    assert calls, f"{owner}.{method} is never called"
    assert any("injected" in message for message in said), said


@pytest.mark.parametrize(
    ("owner", "method", "hook"),
    [
        ("trainmon.signals.new_parameters.NewParameters", "_look", "new parameters"),
        ("trainmon.signals.micro_batches.MicroBatches", "were_added", "weight gradients"),
    ],
)
def test_what_fails_at_the_start_is_off_and_said_once_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], owner: str, method: str, hook: str
) -> None:
    net = tiny.model()
    expected = tiny.train(net, tiny.optimizer_of(net), 3)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(f"{owner}.{method}", broken)
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, EVERYTHING):
        assert tiny.train(net, optimizer, 3) == expected
    assert [f"`{hook}` failed" in message for message in said if "injected" in message] == [True], said
    run = runs.run_directory(tmp_path, 0)
    for number, step in enumerate(tiny.reference(1, 3)):
        for kind, tensors in (("grad_reduced", step.mean), ("param_updated", step.after)):
            rows = runs.by_name(runs.rows(run, kind), number)
            for name, tensor in tensors.items():
                runs.assert_shows(rows[name], tensor, what=kind)


def scaled_steps(
    net: nn.Module, optimizer: torch.optim.Optimizer, overflow_at: int, steps: int, scaler: torch.amp.GradScaler
) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        loss = tiny.loss_of(net, step, 0)
        scaler.scale(loss).backward()
        if step == overflow_at:
            next(iter(net.parameters())).grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_scaler_is_undone_and_its_skipped_steps_do_not_count(tmp_path: Path, fused: bool) -> None:
    net = tiny.model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=1000)
    with watched(tmp_path, net, optimizer, GRADIENTS):
        scaled_steps(net, optimizer, 1, 3, scaler)
    run = runs.run_directory(tmp_path, 0)
    first = next(tiny.reference(1, 1))
    for kind in ("grad_unreduced", "grad_reduced"):
        rows = runs.by_name(runs.rows(run, kind), 0)
        for name, gradient in first.mean.items():
            runs.assert_shows(rows[name], gradient, what=kind)
    lines = runs.steps(run)
    assert float(lines[0]["grad_norm"]) == pytest.approx(first.norm, rel=1e-5)
    if fused:
        # A fused optimizer is called for every step and leaves it out on the device: the host cannot know.
        return
    assert [line["step"] for line in lines] == ["0", "1"], "the step that was left out has no number"
    assert lines[1]["skipped_steps"] == "1"


def test_parameters_without_gradient_have_no_rows(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.shared = self.first
            self.uses_second = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.frozen(self.shared(self.first(x)))
            return self.second(x) if self.uses_second else x

    torch.manual_seed(0)
    net = Branches()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    with watched(tmp_path, net, optimizer, {**GRADIENTS, "mv_distribution": True}):
        for step in range(5):
            net.uses_second = step != 1
            optimizer.zero_grad()
            net(torch.randn(2, 4)).square().sum().backward()
            optimizer.step()
            if step == 2:
                net.frozen.requires_grad_(True)
    run = runs.run_directory(tmp_path, 0)
    for kind in ("grad_unreduced", "grad_reduced"):
        rows = runs.rows(run, kind)
        names = [set(runs.by_name(rows, step)) for step in range(5)]
        first, second = {"first.weight", "first.bias"}, {"second.weight", "second.bias"}
        assert names[0] == first | second
        assert names[1] == first, "no row repeats an earlier step"
        assert names[2] == first | second
        unfrozen = {"frozen.weight", "frozen.bias"}
        assert names[3] == names[4] == first | second | unfrozen


def test_gradients_kept_at_zero_are_measured(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, GRADIENTS):
        tiny.train(net, optimizer, 2, set_to_none=False)
    run = runs.run_directory(tmp_path, 0)
    for number, step in enumerate(tiny.reference(1, 2)):
        rows = runs.by_name(runs.rows(run, "grad_reduced"), number)
        for name, gradient in step.mean.items():
            runs.assert_shows(rows[name], gradient)


def test_writes_that_torch_does_not_count_are_seen(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, GRADIENTS):
        tiny.loss_of(net, 0, 0).backward()
        for parameter in net.parameters():
            parameter.grad.data.mul_(0.5)  # type: ignore[union-attr]
        optimizer.step()
    run = runs.run_directory(tmp_path, 0)
    first = next(tiny.reference(1, 1))
    for name, gradient in first.mean.items():
        runs.assert_shows(runs.by_name(runs.rows(run, "grad_unreduced"), 0)[name], gradient)
        runs.assert_shows(runs.by_name(runs.rows(run, "grad_reduced"), 0)[name], gradient * 0.5)


def test_a_closure_computes_the_gradients(tmp_path: Path) -> None:
    net = tiny.model()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1e-2, max_iter=3)
    evaluations = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = tiny.loss_of(net, 0, 0)
        loss.backward()
        evaluations.append(float(loss))
        return loss

    with watched(tmp_path, net, optimizer, GRADIENTS):
        optimizer.step(closure)
        optimizer.step(closure=closure)
    assert len(evaluations) > 2
    first = next(tiny.reference(1, 1))
    run = runs.run_directory(tmp_path, 0)
    rows = runs.by_name(runs.rows(run, "grad_reduced"), 0)
    for name, gradient in first.mean.items():
        runs.assert_shows(rows[name], gradient)
    assert [line["step"] for line in runs.steps(run)] == ["0", "1"]


class Lion(torch.optim.Optimizer):
    """An optimizer of the user's own, with state of its own name."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                slow = state.setdefault("slow_average", torch.zeros_like(parameter))
                state["step"] = state.get("step", 0) + 1
                slow.lerp_(parameter.grad, 0.1)
                parameter.add_(slow.sign(), alpha=-group["lr"])


@pytest.mark.parametrize(
    ("make", "files"),
    [
        (lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), {"momentum_buffer": "momentum_buffer"}),
        (
            lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
            {"square_avg": "square_avg", "grad_avg": "grad_avg"},
        ),
        (lambda p: torch.optim.Adagrad(p, lr=1e-2), {"sum": "sum"}),
        (
            lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
            {"max_exp_avg_sq": "max_exp_avg_sq", "exp_avg": "exp_avg"},
        ),
        (lambda p: torch.optim.Adamax(p, lr=1e-3), {"exp_inf": "optimizer_state", "exp_avg": "exp_avg"}),
        (Lion, {"slow_average": "optimizer_state"}),
    ],
    ids=["sgd", "rmsprop", "adagrad", "amsgrad", "adamax", "own"],
)
def test_state_of_any_optimizer_is_measured(tmp_path: Path, make: Any, files: dict[str, str]) -> None:
    net = tiny.model()
    optimizer = make(net.parameters())
    with watched(tmp_path, net, optimizer, {"ops": OPS, "mv_distribution": True}):
        tiny.train(net, optimizer, 1)
        kept = {
            name: {key: value.clone() for key, value in optimizer.state[parameter].items() if torch.is_tensor(value)}
            for name, parameter in net.named_parameters()
        }
        tiny.train(net, optimizer, 1)
    run = runs.run_directory(tmp_path, 0)
    for key, file in files.items():
        rows = runs.by_name(runs.rows(run, file), 1)
        for name, state in kept.items():
            runs.assert_shows(rows[f"{name}.{key}" if file == "optimizer_state" else name], state[key], what=key)


def test_two_models_in_one_process_have_their_own_runs(tmp_path: Path) -> None:
    nets = [tiny.model(1), tiny.model(2)]
    optimizers = [tiny.optimizer_of(net) for net in nets]
    watches = [
        watched(tmp_path / str(number), net, optimizer, GRADIENTS)
        for number, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True))
    ]
    for step in range(3):
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            tiny.loss_of(net, step, 0).backward()
        optimizers[0].step()
        if step != 1:
            optimizers[1].step()
    for watch in watches:
        watch.close()
    counted = [len(runs.steps(runs.run_directory(tmp_path / str(number), 0))) for number in range(2)]
    assert counted == [3, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_modules_are_measured_once(tmp_path: Path, reentrant: bool) -> None:
    class Checkpointed(tiny.TinyGpt):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            logits: torch.Tensor = self.head(self.ln(x))
            return logits

    config = {"ops": OPS, "xy_distribution": True, "targets": {"layers.0.fc1": {}, "layers.1.fc2": {}}}

    def rows_of(net: nn.Module, place: Path) -> tuple[list[runs.Row], list[runs.Row]]:
        optimizer = tiny.optimizer_of(net)
        with watched(place, net, optimizer, config, grad_acc_steps=2):
            tiny.train(net, optimizer, 2, micro_batches=2)
        run = runs.run_directory(place, 0)
        return runs.rows(run, "actv"), runs.rows(run, "actv_grad")

    torch.manual_seed(7)
    ours = rows_of(Checkpointed(), tmp_path / "checkpointed")
    plain = rows_of(tiny.model(), tmp_path / "plain")
    for found, expected in zip(ours, plain, strict=True):
        key = lambda row: (row["step"], row["micro_step"], row["name"])  # noqa: E731
        assert sorted(found, key=key) == sorted(expected, key=key)


def test_a_tensor_seen_before_is_not_taken_for_another(tmp_path: Path) -> None:
    class TwoAlike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head, self.tail = nn.Linear(4, 4), nn.Linear(4, 2), nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.encoder(x), self.encoder(2 * x)
            kept.extend([first.detach().clone(), second.detach().clone()])
            left = self.head(first)
            first.data.mul_(3)
            mixed: torch.Tensor = left + self.head(second) + self.tail(self.head(x))
            return mixed

    kept: list[torch.Tensor] = []
    torch.manual_seed(0)
    net = TwoAlike()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    config = {"ops": OPS, "xy_distribution": True, "targets": {"encoder": {}, "head": {}}}
    with watched(tmp_path, net, optimizer, config, grad_acc_steps=2):
        net(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    rows = runs.rows(runs.run_directory(tmp_path, 0), "actv")
    found = {(row["name"], row["micro_step"]): row for row in rows}
    for call, tail in enumerate(("", "@2")):
        runs.assert_shows(found[f"encoder.output{tail}", "0"], kept[call])
        runs.assert_shows(found[f"head.input{tail}", "0"], kept[call])


def test_evaluation_is_not_measured(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, {"ops": OPS, "xy_distribution": True, "all_xy": True}):
        tiny.train(net, optimizer, 1)
        net.eval()
        with torch.no_grad():
            tiny.loss_of(net, 5, 0)
        net.train()
        tiny.train(net, optimizer, 1)
    rows = runs.rows(runs.run_directory(tmp_path, 0), "actv")
    counts = {step: sum(row["step"] == step for row in rows) for step in ("0", "1")}
    assert counts["0"] == counts["1"] > 0


def test_everything_patched_is_put_back(tmp_path: Path) -> None:
    before = (torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step, torch.amp.GradScaler.scale)
    net, optimizer = tiny.training()
    first = watched(tmp_path / "a", net, optimizer, EVERYTHING)
    second = watched(tmp_path / "b", net, optimizer, EVERYTHING)
    first.close()
    assert torch.nn.utils.clip_grad_norm_ is not before[0], "the second watch still listens"
    second.close()
    second.close()
    assert (torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.step, torch.amp.GradScaler.scale) == before
    assert not patches.listeners()
    assert not any(map(hooks_of_tensor, net.parameters()))
    assert not hooks_of(net) and not hooks_of_optimizer(optimizer)


def test_a_restricted_choice_has_no_global_norm(tmp_path: Path) -> None:
    net, optimizer = tiny.training()
    with watched(tmp_path, net, optimizer, {**GRADIENTS, "targets": {"layers.0": {}}}):
        tiny.train(net, optimizer, 1)
    run = runs.run_directory(tmp_path, 0)
    assert all(row["name"].startswith("layers.0") for row in runs.rows(run, "grad_reduced"))
    assert runs.steps(run)[0]["grad_norm"] == ""
