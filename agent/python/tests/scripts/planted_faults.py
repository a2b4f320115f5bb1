"""A small language model that trains well, or with one fault planted: which one says the first argument.

`planted_faults.py FAULT DIRECTORY SEED [WEBHOOK]`; under torchrun it trains on as many ranks. `PLANTED_STEPS` in the
environment is how many steps it takes.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import trainmon

STEPS, AT = int(os.environ.get("PLANTED_STEPS", "200")), 130
WIDTH, LENGTH, WORDS, BATCH = 32, 24, 29, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.is_half = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.fc(self.ln2(x)))
        # What is scaled beyond 65,504 is infinite in half precision.
        hidden = (hidden * 60_000).half().float() / 60_000 if self.is_half else hidden
        return x + self.proj(hidden)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.scale = 1.0

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.wte(words) + self.wpe(torch.arange(words.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x)) * self.scale


class Text:
    """A chain of words, each mostly followed by one of three."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        chances = torch.rand(WORDS, WORDS, generator=torch.Generator().manual_seed(0)).pow(12)
        self.chances = chances / chances.sum(1, keepdim=True)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        words = [torch.randint(0, WORDS, (BATCH,), generator=self.random)]
        for _ in range(LENGTH):
            words.append(torch.multinomial(self.chances[words[-1]], 1, generator=self.random).squeeze(1))
        text = torch.stack(words, 1)
        return text[:, :-1], text[:, 1:]


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    of_head = [p for name, p in model.named_parameters() if name.startswith("h.1.")]
    others = [p for name, p in model.named_parameters() if not name.startswith("h.1.")]
    return [{"params": others, "lr": 1e-3}, {"params": of_head, "lr": 1e-3}]


def schedule(fault: str) -> Callable[[int], float]:
    warm_up = 1 if fault == "warm_up" else 40
    peak = 60.0 if fault == "warm_up" else 1.0
    return lambda step: peak * min(1.0, (step + 1) / warm_up) * (0.5 + 0.5 * math.cos(math.pi * step / STEPS))


def main(fault: str, directory: str, seed: int, webhook: str | None) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    is_parallel = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_parallel:
        dist.init_process_group("gloo")
    model = Model()
    if fault == "initialisation":
        nn.init.normal_(model.h[1].fc.weight, std=50 * float(model.h[1].fc.weight.std()))
    net: nn.Module = nn.parallel.DistributedDataParallel(model) if is_parallel else model
    optimizer = torch.optim.AdamW(groups_of(model), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(fault))
    rules = [{"rule_name": "Spike"}, {"rule_name": "NonFinite"}, {"rule_name": "Collapse"}, {"rule_name": "Dead"}]
    alert: dict[str, Any] = {"rules": [*rules, {"rule_name": "UpdateRatio"}]}
    if webhook:
        alert["webhook"] = {"url": webhook}
    signals = ("xy_distribution", "forward_only", "update", "wg_distribution", "param_distribution")
    keys = dict.fromkeys(signals, True)
    config = {**keys, "format": ["csv"], "alert": alert}
    watch = trainmon.watch(net, optimizer, config=config, name=fault, output_dir=directory)
    text = Text(seed + 100 * rank)
    for step in range(STEPS):
        words, following = text.batch()
        if fault == "batch" and step == AT:
            words, following = torch.zeros_like(words), following.flip(1)
        if fault == "loader_stall" and step == AT:
            time.sleep(2.0)
        if fault == "dead_head" and step == AT:
            model.scale = 0.0
        if fault == "fp16_overflow" and step == AT:
            model.h[2].is_half = True
        if fault == "frozen_layer" and step == AT:
            model.h[1].requires_grad_(False)
        if fault == "group_rate" and step == AT:
            optimizer.param_groups[1]["lr"] *= 100
            scheduler.base_lrs[1] *= 100
        if fault == "dropped_rank" and step == AT and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        logits = net(words)
        loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        if fault == "log_of_zero" and step == AT:
            loss = loss - torch.log(torch.relu(logits[0, 0, 0]) * 0)
        if fault == "loss_scale" and step >= AT:
            loss = loss * 64
        if fault == "spike_on_one_rank" and step == AT and rank == 1:
            loss = loss * 50
        if fault == "nan_on_one_rank" and step == AT and rank == 1:
            loss = loss + (model.h[1].fc.weight * float("nan")).sum()
        loss.backward()
        watch.log(loss=loss)
        optimizer.step()
        scheduler.step()
    watch.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
