"""Monitored trainings that differ by nothing but round-off, and such with one fault each, for the tests of runs' comparison.

    make_monitor_runs.py OUT [NAME...]            OUT/<name>: the monitor's output
    make_monitor_runs.py OUT --bundle FILE        short ones, all in one file for the tests

Needs torch and the installed package `trainmon`. Every training is that of one tiny GPT.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import trainmon
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 128, 32, 4, 32, 16
CONFIG = {
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "step_count_per_record": 1000,
}


class Block(nn.Module):
    """Pre-norm transformer block with a key bias, whose gradient is nothing but round-off."""

    def __init__(self, is_half: bool) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.is_half = is_half

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        normed = self.ln1(x)
        q, k, v = (f(normed).view(batch, length, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        inner = functional.gelu(self.fc1(self.ln2(x)))
        if self.is_half:
            inner = inner.bfloat16().float()
        return x + self.fc2(inner)


class Gpt(nn.Module):
    """Its last block may round its inner activations to bfloat16."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block(is_half=False) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.ln(x))
        return logits


@dataclass
class Training:
    """What one training does otherwise."""

    steps: int = 24
    layers: int = 2
    ops: tuple[str, ...] = ("norm", "mean", "min", "max")
    seed: int = 3
    data: int = 0
    threads: int = 1
    order: int = 0
    optimizer: str = "adamw"
    lr: float = 2e-3
    eps: float = 1e-8
    fault: Callable[[int, Gpt, torch.optim.Optimizer], None] | None = None
    gradient_fault: Callable[[int, Gpt], None] | None = None
    ndigits: int | None = None
    is_half: bool = False


def samples(step: int, training: Training) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * training.data + step)
    start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
    stride = torch.randint(1, 5, (BATCH, 1), generator=generator)
    tokens = (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY
    # The same samples in another order: sums over the batch are rounded otherwise.
    order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(training.order)) if training.order else None
    tokens = tokens if order is None else tokens[order]
    return tokens[:, :-1], tokens[:, 1:]


def train(training: Training, place: Path) -> None:
    torch.set_num_threads(training.threads)
    torch.manual_seed(training.seed)
    net = Gpt(training.layers)
    make = {
        "adamw": lambda: torch.optim.AdamW(net.parameters(), lr=training.lr, eps=training.eps, weight_decay=0.1),
        "sgd": lambda: torch.optim.SGD(net.parameters(), lr=100 * training.lr, momentum=0.9),
    }
    optimizer = make[training.optimizer]()
    config = CONFIG | {"ops": list(training.ops)} | ({} if training.ndigits is None else {"ndigits": training.ndigits})
    watch = trainmon.watch(net, optimizer, config=config, output_dir=str(place))
    for step in range(training.steps):
        if training.fault is not None:
            training.fault(step, net, optimizer)
        inputs, targets = samples(step, training)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=training.is_half):
            loss = functional.cross_entropy(net(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        if training.gradient_fault is not None:
            training.gradient_fault(step, net)
        optimizer.step()
    watch.close()


def at(
    step: int, act: Callable[[Gpt, torch.optim.Optimizer], None]
) -> Callable[[int, Gpt, torch.optim.Optimizer], None]:
    def fault(now: int, net: Gpt, optimizer: torch.optim.Optimizer) -> None:
        if now == step:
            act(net, optimizer)

    return fault


def set_group(**values: float | tuple[float, float]) -> Callable[[Gpt, torch.optim.Optimizer], None]:
    return lambda _net, optimizer: optimizer.param_groups[0].update(values)


def halve(net: Gpt, _optimizer: torch.optim.Optimizer) -> None:
    net.layers[-1].is_half = True


def explode_after_poke(step: int, net: Gpt, optimizer: torch.optim.Optimizer) -> None:
    at(6, poke)(step, net, optimizer)
    at(10, set_group(lr=30.0))(step, net, optimizer)


def rising(first: float, factor: float) -> Callable[[int, Gpt, torch.optim.Optimizer], None]:
    """A learning rate that grows from step to step."""
    return lambda step, _net, optimizer: optimizer.param_groups[0].update(lr=first * factor**step)


def poke(net: Gpt, _optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        net.layers[0].fc1.weight[3, 4] += 0.05


def scale_gradients(step: int, net: Gpt) -> None:
    if step >= 12:
        for parameter in net.parameters():
            parameter.grad *= 2.0


def late(act: Callable[[Gpt], None]) -> Callable[[int, Gpt], None]:
    """Does something to the gradients from step 13 on."""

    def fault(step: int, net: Gpt) -> None:
        if step >= 13:
            act(net)

    return fault


def add_noise(net: Gpt) -> None:
    gradient = net.layers[0].q.weight.grad
    gradient += 1e-5 * torch.randn(gradient.shape, generator=torch.Generator().manual_seed(1))


FAULTS = {
    "half": {"fault": at(9, halve)},
    "weight": {"fault": at(16, poke)},
    "eps": {"fault": at(10, set_group(eps=1e-5))},
    "zero": {"gradient_fault": late(lambda net: net.layers[0].v.weight.grad.zero_())},
    "scale_one": {"gradient_fault": late(lambda net: net.layers[0].fc2.weight.grad.mul_(1.05))},
    "noise_one": {"gradient_fault": late(add_noise)},
    "scale_all": {"gradient_fault": scale_gradients},
    "beta1": {"fault": at(12, set_group(betas=(0.8, 0.999)))},
    "beta2": {"fault": at(12, set_group(betas=(0.9, 0.99)))},
    "decay": {"fault": at(11, set_group(weight_decay=0.0))},
    "norm_eps": {"fault": at(8, lambda net, _: setattr(net.layers[0].ln1, "eps", 1e-3))},
    "bias": {"fault": at(15, lambda net, _: net.layers[0].out.bias.data.add_(0.01))},
}
# Measured more and less fully: the norm alone is the hardest.
MEASURED = {5: ("norm",), 6: ("norm", "max"), 7: ("norm", "mean", "min", "max")}

TRAININGS = {
    "golden": Training(),
    "same": Training(),
    "threads": Training(threads=2),
    "order": Training(order=1),
    "order2": Training(order=2),
    "order3": Training(order=3),
    "lr": Training(order=1, fault=at(14, set_group(lr=2.4e-3))),
    "lr_exact": Training(fault=at(14, set_group(lr=2.01e-3))),
    "eps": Training(order=1, eps=1e-4),
    "eps_late": Training(order=1, fault=at(10, set_group(eps=1e-4))),
    "half": Training(order=1, fault=at(9, halve)),
    "weight": Training(order=1, fault=at(16, poke)),
    "gradients": Training(order=1, gradient_fault=scale_gradients),
    "seed": Training(seed=4),
    "data": Training(data=1),
    "sgd": Training(optimizer="sgd"),
    "sgd_order": Training(optimizer="sgd", order=1),
    "long": Training(steps=200),
    "long_order": Training(steps=200, order=1),
    "bf16": Training(is_half=True),
    "bf16_order": Training(is_half=True, order=1),
    "bf16_lr": Training(is_half=True, order=1, fault=at(14, set_group(lr=2.4e-3))),
    "bf16_gradients": Training(is_half=True, order=1, gradient_fault=scale_gradients),
    "digits": Training(ndigits=6),
    "digits_order": Training(ndigits=6, order=1),
    "digits_lr": Training(ndigits=6, order=1, fault=at(14, set_group(lr=2.4e-3))),
    "blow_up_weight": Training(optimizer="sgd", ops=("norm",), order=1, fault=explode_after_poke),
}


for seed, ops in MEASURED.items():
    TRAININGS[f"golden_{seed}"] = Training(seed=seed, ops=ops)
    TRAININGS[f"order_{seed}"] = Training(seed=seed, ops=ops, order=1)
    for fault_name, fault_of in FAULTS.items():
        TRAININGS[f"{fault_name}_{seed}"] = Training(seed=seed, ops=ops, order=1, **fault_of)

# Both runs blow up: what differs in the last steps is round-off.
BLOW_UPS = {
    "blow_up": Training(optimizer="sgd", ops=("norm",), fault=at(10, set_group(lr=30.0))),
    "blow_sgd_1": Training(optimizer="sgd", lr=1e-2, steps=60),
    "blow_sgd_2": Training(optimizer="sgd", lr=2e-2, steps=40),
    "blow_sgd_10": Training(optimizer="sgd", lr=1e-1, steps=40),
    "blow_sgd_late": Training(optimizer="sgd", steps=40, fault=at(15, set_group(lr=3.0))),
    "blow_sgd_late_10": Training(optimizer="sgd", steps=40, fault=at(15, set_group(lr=30.0))),
    "blow_sgd_rising": Training(optimizer="sgd", steps=60, fault=rising(0.05, 1.15)),
    "blow_sgd_rising_norm": Training(optimizer="sgd", steps=60, ops=("norm",), fault=rising(0.05, 1.15)),
    "blow_adamw_03": Training(lr=0.3, steps=40),
    "blow_adamw_1": Training(lr=1.0, steps=40),
    "blow_adamw_late": Training(steps=40, fault=at(15, set_group(lr=0.5))),
    "blow_adamw_rising": Training(steps=50, fault=rising(2e-3, 1.2)),
    "blow_adamw_rising_norm": Training(steps=50, ops=("norm",), fault=rising(2e-3, 1.2)),
}
for blow_up_name, blow_up in BLOW_UPS.items():
    for suffix, order in {"": 0, "_order": 1, "_order2": 2}.items():
        TRAININGS[blow_up_name + suffix] = replace(blow_up, order=order)

BUNDLED = ("golden", "order", "half", "weight", "blow_up", "blow_up_order", "blow_up_order2", "blow_up_weight")


def bundle(out: Path, file: Path) -> None:
    """Every file of the short trainings as text, in one gzipped JSON object: name, file, content."""
    runs: dict[str, dict[str, str]] = {}
    for name in BUNDLED:
        ops = tuple(op for op in TRAININGS[name].ops if op in ("norm", "max"))
        train(replace(TRAININGS[name], steps=20, layers=1, ops=ops), out / name)
        [run] = (out / name).iterdir()
        runs[name] = {
            path.name: path.read_text() for path in sorted(run.iterdir()) if "grad_unreduced" not in path.name
        }
    with gzip.GzipFile(file, "wb", mtime=0) as packed:
        packed.write(json.dumps(runs).encode())


if __name__ == "__main__":
    if sys.argv[2:3] == ["--bundle"]:
        bundle(Path(sys.argv[1]), Path(sys.argv[3]))
    else:
        for chosen in sys.argv[2:] or list(TRAININGS):
            train(TRAININGS[chosen], Path(sys.argv[1]) / chosen)
            print(chosen, flush=True)
