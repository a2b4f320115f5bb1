"""Trains a tiny GPT under Megatron-core in several ways: unwatched, watched, and with our hooks failing; compares.

Arguments: the output directory, then names of cases.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from support import megatron_cpu
from support.configs import PARAMETERS

megatron_cpu.install()

import torch  # noqa: E402
from torch import distributed  # noqa: E402

from support import bits, breaking, runs  # noqa: E402
from support import megatron_gpt as gpt  # noqa: E402
from support.megatron_truth import Step, Twin, moments  # noqa: E402
from support.ranks import finish  # noqa: E402
from trainmon.frameworks import megatron, megatron_shards  # noqa: E402
from trainmon.frameworks.megatron import Megatron  # noqa: E402
from trainmon.frameworks.megatron_shards import Held, leaves  # noqa: E402
from trainmon.watches.startup import start_monitor  # noqa: E402
from trainmon.watches.watch import Watch  # noqa: E402

#: Compared to the bit with and without a watch; the first of them also with the twin.
STEPS, CHECKED = bits.STEPS, 4
CASES = {
    case.name: case
    for case in (
        gpt.Case("plain"),
        gpt.Case("plain16", bf16=True, overlap=True, bucket=4000),
        gpt.Case("sharded", dist=True, overlap=True, bf16=True, bucket=4000),
        gpt.Case("sharded32", dist=True, bucket=4000, overlap=True, micro=3),
        gpt.Case("tensor", tp=2),
        gpt.Case("tensor_dist", tp=2, dist=True, bf16=True),
        gpt.Case("pipeline", pp=2),
        gpt.Case("interleaved", pp=2, vpp=2),
        gpt.Case("overflow", fp16=True),
        gpt.Case("experts", experts=4, ep=2),
        gpt.Case("experts_dist", experts=4, ep=2, dist=True, bf16=True, overlap=True, bucket=4000),
        gpt.Case("experts_idle", experts=32, ep=2),
        gpt.Case("tokens", per_token=True, micro=1),
        gpt.Case("instances", dist=True, overlap=True, instances=2),
        gpt.Case("rerun", overlap=True, bucket=4000, reruns=1),
    )
}
#: Cases whose every micro-batch is shown.
EVERY = {"plain", "sharded", "tensor", "pipeline", "experts", "experts_idle"}


class Training:
    """One run of a case, and what it was left with."""

    def __init__(self, case: gpt.Case) -> None:
        gpt.start(case)
        self.case = case
        self.models, self.optimizer = gpt.build(case)
        self.losses: list[list[float]] = []
        self.results: list[Any] = []
        self.gradients: list[list[torch.Tensor]] = []

    def step(self, number: int) -> None:
        """One step; keeps the aggregated gradients too."""
        for _ in range(self.case.reruns):
            gpt.backward(self.case, self.models, self.optimizer, number)
        self.losses.append(gpt.backward(self.case, self.models, self.optimizer, number))
        self.gradients.append([p.main_grad.clone() for model in self.models for p in model.parameters()])
        self.results.append(self.optimizer.step())

    def outcome(self) -> bits.Outcome:
        """Everything that must not depend on being watched."""
        if self.case.overlap and self.case.dist:
            for model in self.models:
                model.start_param_sync(force_sync=True)
        return {
            "losses": self.losses,
            "results": self.results,
            "gradients": self.gradients,
            "parameters": [p.detach().clone() for model in self.models for p in model.parameters()],
            "moments": [one for leaf in leaves(self.optimizer) for one in bits.optimizer_state(leaf.optimizer)],
            "random": [torch.get_rng_state()],
        }


def unwatched(case: gpt.Case) -> tuple[bits.Outcome, list[Step], list[float]]:
    """The outcome, what the first made steps must show, and the norms of all."""
    training = Training(case)
    twin = Twin(case, training.models)
    truth, norms = [], []
    state = torch.get_rng_state()
    for number in range(STEPS):
        is_checked = number < CHECKED
        if case.overlap and case.dist and 0 < number < CHECKED:
            # Parameters are gathered as the forward pass needs them; the twin looks before.
            for model in training.models:
                model.start_param_sync(force_sync=True)
        scale = float(training.optimizer.get_loss_scale()) if case.fp16 else 1.0
        expected = twin.step(number, scale) if is_checked else None
        training.step(number)
        if training.results[-1][0]:
            norms.append(training.results[-1][1])
            if expected is not None:
                truth.append(expected)
    assert torch.equal(state, torch.get_rng_state())
    moments(truth, norms, case.clip)
    return training.outcome(), truth, norms


def watched(
    case: gpt.Case, base: Path, *, faulty: tuple[str, ...] = (), device: bool = False, **groups: Any
) -> tuple[bits.Outcome, Training]:
    """The outcome with a watch; the named methods of ours raise. `device`: tensors are measured as on a device."""
    training = Training(case)
    config = {
        "targets": {},
        "format": "csv",
        "ops": ["min", "max", "mean", "norm"],
        "ndigits": 18,
        **PARAMETERS,
        "mg_direction": True,
        "monitor_mbs_grad": case.name in EVERY,
    }
    kept = {name: getattr(Megatron, name) for name in faulty}

    def fails(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("injected")

    classes = {type(group) for model in training.models for group in model.bucket_groups}
    before = {one: vars(one)["start_grad_sync"] for one in classes}
    given = {name: group() for name, group in groups.items()}
    monitor = start_monitor(config, output_dir=str(base))
    with Watch(
        training.models, training.optimizer, monitor, grad_acc_steps=case.micro, device_only=device, **given
    ) as watch:
        assert isinstance(watch.framework, Megatron)
        assert all(vars(one)["start_grad_sync"] is not method for one, method in before.items())
        for name in faulty:
            setattr(Megatron, name, fails)
        try:
            for number in range(STEPS):
                training.step(number)
                if number < CHECKED:
                    bits.await_norm(watch)
        finally:
            for name, method in kept.items():
                setattr(Megatron, name, method)
    assert all(vars(one)["start_grad_sync"] is method for one, method in before.items()), "a method was not put back"
    assert "step" not in vars(training.optimizer)
    return training.outcome(), training


def expect(case: gpt.Case, training: Training, truth: list[Step], norms: list[float], base: Path) -> None:
    """What was written is what the twin says."""
    directory = runs.run_directory(base, distributed.get_rank())
    tensor_rank = distributed.get_rank() % case.tp
    names = [(key, parameter) for key, _, parameter in Twin(case, training.models).names()]
    own = [(key, p) for key, p in names if tensor_rank == 0 or getattr(p, "tensor_model_parallel", False)]
    spans = held_spans(case, training)
    relative = 2e-3 if case.is_16_bit else 2e-5
    for number, step in enumerate(truth):

        def whole(table: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
            return {key: table[key] for key, _ in own if key in table}

        def part(table: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
            if not case.dist:
                return whole(table)
            return {
                key: table[key].reshape(-1)[slice(*spans[id(p)])] for key, p in own if id(p) in spans and key in table
            }

        micros = range(case.micro) if case.name in EVERY else [case.micro - 1]
        for micro in micros:
            local = {key: step.local[key][micro] for key, _ in own if key in step.local}
            compare(case, directory, "grad_unreduced", number, local, relative, micro=micro, skip=len(own) - len(local))
        compare(case, directory, "grad_reduced", number, part(step.mean), relative)
        compare(case, directory, "param_origin", number, part(step.before), 1e-6)
        if number + 1 < len(truth):
            compare(case, directory, "param_updated", number, part(truth[number + 1].before), 1e-6)
        for kind in ("exp_avg", "exp_avg_sq"):
            compare(case, directory, kind, number, part(getattr(step, kind)), 3 * relative)
        if number:
            directions(case, directory, number, part(step.mean), part(step.exp_avg))
    lines = runs.steps(directory)
    assert len(lines) == len(norms), lines
    for line, norm in zip(lines, norms, strict=True):
        ours, theirs = float(line["grad_norm"]), float(line["framework_grad_norm"])
        assert abs(theirs - norm) <= 1e-6 * norm, (case.name, line, norm)
        assert int(line["step"]) >= len(truth) or abs(ours - norm) <= 2e-6 * norm, (case.name, line, norm)


def directions(
    case: gpt.Case, directory: Path, step: int, gradients: dict[Any, torch.Tensor], averages: dict[Any, torch.Tensor]
) -> None:
    """How far gradients agree in sign with their moving averages; one element may round to the other side of zero."""
    found = runs.by_name([row for row in runs.rows(directory, "other") if row["vpp_stage"] == "0"], step)
    assert len(found) == sum(chunk == 0 for chunk, _ in gradients), (case.name, found)
    for (chunk, name), gradient in gradients.items():
        if chunk == 0:
            agreement = float((gradient.sign() * averages[chunk, name].sign()).sum() / gradient.numel() + 1) / 2
            shown = float(found[name]["mean"])
            assert abs(shown - agreement) <= 1.01 / gradient.numel() + 1e-6, (case.name, name, shown, agreement)


def expect_first_only(base: Path, truth: list[float]) -> None:
    """With a `dp_group`, only its first rank writes aggregated gradients; every rank knows their norm."""
    rank = distributed.get_rank()
    directory = runs.run_directory(base, rank)
    assert bool(runs.rows(directory, "grad_reduced")) is (rank == 0)
    assert runs.rows(directory, "grad_unreduced")
    assert runs.rows(directory, "exp_avg")
    shown = [float(line["grad_norm"]) for line in runs.steps(directory)]
    assert len(truth) == STEPS
    assert all(abs(one - norm) <= 2e-6 * norm for one, norm in zip(shown, truth, strict=True)), (shown, truth)


def held_spans(case: gpt.Case, training: Training) -> dict[int, tuple[int, int]]:
    """By the buffers' layout, not by the optimizer's tables."""
    return gpt.shards(training.models) if case.dist else {}


def compare(
    case: gpt.Case,
    directory: Path,
    kind: str,
    step: int,
    expected: dict[Any, torch.Tensor],
    relative: float,
    *,
    micro: int | None = None,
    skip: int = 0,
) -> None:
    """The rows of a kind and step are those expected, no more and no less (`skip` more, of tied parameters)."""
    if kind == "grad_unreduced" and case.name not in EVERY:
        micro = None
    found: dict[tuple[int, str], Any] = {}
    for row in runs.rows(directory, kind):
        if int(row["step"]) == step and (micro is None or int(row.get("micro_step", micro)) == micro):
            key = (int(row["vpp_stage"]), row["name"])
            assert key not in found, f"{case.name}: {kind} {key} twice in step {step}"
            found[key] = row
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    where = f"{case.name} rank {distributed.get_rank()} step {step} {kind} {micro}"
    assert not missing and len(extra) == skip, f"{where}: missing {missing}, extra {extra}"
    for key, tensor in expected.items():
        runs.assert_shows(found[key], tensor, relative=relative, what=where)


def broken(case: gpt.Case, base: Path) -> bits.Outcome:
    """The outcome where nothing can be found out about the optimizer."""
    kept = megatron.holdings, megatron.standing

    def fails(*_args: Any, **_kwargs: Any) -> Any:
        raise AttributeError("injected")

    megatron.holdings = megatron.standing = fails
    try:
        return watched(case, base)[0]
    finally:
        megatron.holdings, megatron.standing = kept


FAULTS = (
    "_in_group",
    "reduced",
    "moments",
    "values",
    "gradient_factor",
    "_is_left_out",
    "counts_in_norm",
    "reported_norm",
)


#: Beside what every framework's steps lead to.
REACHED = {
    "Megatron.__init__",
    "Megatron._find_shards",
    "Megatron._find_standing",
    "Megatron.attach_gradients",
    "Megatron._attach_earlier",
    "Megatron._in_group",
    "Megatron.attach_late_gradients",
    "Megatron.attach_step",
    "Megatron._is_left_out",
    "Megatron.reported_norm",
    "Megatron.gradient_factor",
    "Megatron.reduced",
    "Megatron.moments",
    "Megatron.values",
    "Megatron.mark_replicas",
    "Megatron.reports_reduced",
    "Megatron.counts_in_norm",
    "Megatron.has_norm",
    "Megatron.exchange",
    "Megatron.detach",
    "Megatron.learning_rate",
    "Held.part",
    "Held.state",
    "megatron.holdings",
    "megatron.standing",
    "megatron._is_captured",
}


def one_by_one(case: gpt.Case, base: Path) -> None:
    """Each function of ours that a hook reaches raises in turn, for one step of a training."""
    case = dataclasses.replace(case, layers=breaking.LAYERS)
    training = Training(case)

    def step(number: int) -> Watch:
        monitor = start_monitor(breaking.config_of_everything(base))
        # It takes no gradient yet, so that there is one to be hooked later.
        late = next(training.models[0].parameters()).requires_grad_(False)
        watch = Watch(training.models, training.optimizer, monitor, grad_acc_steps=case.micro)
        late.requires_grad_(True)
        training.step(number)
        watch.close()
        return watch

    found = breaking.faults(Megatron, Held, megatron, megatron_shards)
    reached, steps = breaking.one_by_one(found, step)
    breaking.assert_reached(reached, breaking.ALWAYS | REACHED)
    seen = training.outcome()
    training = Training(case)
    for number in range(steps):
        training.step(number)
    bits.assert_same(training.outcome(), seen, f"{case.name}: one function failing after the other")


def main() -> None:
    """Runs the cases named on the command line."""
    base = Path(sys.argv[1])
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        case = CASES[name]
        quiet, truth, norms = unwatched(case)
        seen, training = watched(case, base / name)
        bits.assert_same(quiet, seen, name)
        expect(case, training, truth, norms, base / name)
        if name == "experts_idle":
            first = [micro_batches[0] for step in truth for micro_batches in step.local.values()]
            assert not all(gradient.any() for gradient in first), "no expert was without tokens in a micro-batch"
        if name in ("plain", "sharded"):
            late, training = watched(case, base / f"{name}_device", device=True)
            bits.assert_same(quiet, late, f"{name}: watching as on a device")
            expect(case, training, truth, norms, base / f"{name}_device")
            bare = broken(case, base / f"{name}_broken")
            bits.assert_same(quiet, bare, f"{name}: failing to attach")
            failed, _ = watched(case, base / f"{name}_faulty", faulty=FAULTS)
            bits.assert_same(quiet, failed, f"{name}: a failing hook")
        if name == "sharded":
            one_by_one(case, base / "one_by_one")
        if name == "plain":
            state = gpt.parallel_state
            groups = {"tp_group": state.get_tensor_model_parallel_group, "dp_group": state.get_data_parallel_group}
            again, _ = watched(case, base / "plain_groups", **groups)
            bits.assert_same(quiet, again, f"{name}: watching with groups")
            expect_first_only(base / "plain_groups", norms)
        print(f"case {name} rank {distributed.get_rank()} ok: {len(norms)} of {STEPS} steps made", flush=True)
    finish()


main()
