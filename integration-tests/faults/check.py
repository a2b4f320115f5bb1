"""Says where two exact recordings first part, from the tensors themselves.

It shares nothing with what plants faults.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .case import Truth

SOURCES = ("input_args", "input_kwargs", "input", "parameters")
"""What a node gets: a module reads its parameters, also where no operator inside it is recorded."""


Pair = tuple[Any, Any]
"""A tensor of golden and the same of target."""


@dataclass(frozen=True)
class Difference:
    """One node that is not the same on both sides."""

    step: int
    rank: int
    index: int
    node: str
    inputs: bool
    """Whether what it got differs, be it a tensor or a scalar."""
    outputs: bool
    missing: str = ""
    """The side that lacks it."""

    def __str__(self) -> str:
        parts = [part for part, yes in (("inputs", self.inputs), ("outputs", self.outputs)) if yes]
        text = f"missing in {self.missing}" if self.missing else " and ".join(parts) + " differ"
        return f"step {self.step} rank {self.rank} {self.node}: {text}"


def differences(golden: Path, target: Path, steps: int, rank: int, noise: float = 0.0) -> list[Difference]:
    """All of one rank's, in the order of execution. Golden nodes that lack come at their place, target's at theirs."""
    found: list[Difference] = []
    for step in range(steps):
        places = [side / f"step{step}/rank{rank}" for side in (golden, target)]
        sides = [json.loads((place / "dump.json").read_text())["data"] for place in places]
        for index, node in enumerate(_in_order(list(sides[0]), list(sides[1]))):
            if node not in sides[1]:
                found.append(Difference(step, rank, index, node, inputs=False, outputs=False, missing="target"))
            elif node not in sides[0]:
                found.append(Difference(step, rank, index, node, inputs=False, outputs=False, missing="golden"))
            else:
                inputs, outputs = _compare(sides[0][node], sides[1][node], places, noise)
                if inputs or outputs:
                    found.append(Difference(step, rank, index, node, inputs=inputs, outputs=outputs))
    return found


def _in_order(golden: list[str], target: list[str]) -> list[str]:
    """Golden's order, with what only target has before the node that follows it there."""
    merged: list[str] = []
    known = set(golden)
    waiting: dict[str | None, list[str]] = {}
    extra: list[str] = []
    for node in target:
        if node in known:
            waiting[node] = extra
            extra = []
        else:
            extra.append(node)
    for node in golden:
        merged += [*waiting.get(node, []), node]
    return merged + extra


def _compare(golden: Any, target: Any, places: list[Path], noise: float) -> tuple[bool, bool]:
    """Whether inputs and outputs differ. What has no inputs, the gradients of parameters, is all output."""
    parts = []
    for side in (golden, target):
        inputs = {key: side[key] for key in SOURCES if key in side}
        outputs = {key: value for key, value in side.items() if key not in SOURCES}
        parts.append((inputs, outputs))
    (golden_in, golden_out), (target_in, target_out) = parts
    return _differ(golden_in, target_in, places, noise), _differ(golden_out, target_out, places, noise)


def _differ(golden: Any, target: Any, places: list[Path], noise: float) -> bool:
    pairs: list[Pair] = []
    if not _alike(golden, target, places, pairs):
        return True
    if noise == 0.0:
        return any(_bytes(left) != _bytes(right) for left, right in pairs)
    # A gradient that is zero but for rounding is all noise: what stands beside it gives the scale.
    scale = max((float(left.double().norm()) for left, _ in pairs), default=0.0)
    return any(not float((left.double() - right.double()).norm()) <= noise * scale for left, right in pairs)


def _alike(golden: Any, target: Any, places: list[Path], pairs: list[Pair]) -> bool:
    """Whether all but the elements of tensors are the same. The tensors go into `pairs`."""
    if isinstance(golden, dict) and isinstance(target, dict):
        if "data_name" in golden and "data_name" in target:
            files = (
                place / "dump_tensor_data" / one["data_name"]
                for place, one in zip(places, (golden, target), strict=True)
            )
            left, right = (torch.load(file) for file in files)
            pairs.append((left, right))
            same = left.dtype == right.dtype and left.shape == right.shape
            return bool(same and golden["requires_grad"] == target["requires_grad"])
        return golden.keys() == target.keys() and all(_alike(golden[key], target[key], places, pairs) for key in golden)
    if isinstance(golden, list) and isinstance(target, list):
        same = len(golden) == len(target)
        return same and all(_alike(a, b, places, pairs) for a, b in zip(golden, target, strict=True))
    return bool(golden == target) or (golden != golden and target != target)  # noqa: PLR0124 (NaN)


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy())


def complaints(golden: Path, target: Path, steps: int, ranks: int, truth: Truth) -> tuple[list[str], list[str]]:
    """What speaks against a truth, and the first differences of each rank."""
    per_rank = [differences(golden, target, steps, rank, truth.noise) for rank in range(ranks)]
    apis = [[one for one in found if _counts(one.node, truth)] for found in per_rank]
    seen = [str(found[0]) if found else f"rank {rank} is the same" for rank, found in enumerate(apis)]
    if truth.verdict == "none":
        other = [one for found in per_rank for one in found if not one.missing]
        is_right = truth.bits_differ is None or bool(other) == truth.bits_differ
        return ([] if is_right else ["bits differ" if other else "no bit differs"]), seen
    against: list[str] = []
    for rank in range(ranks):
        if truth.rank is None or truth.rank == rank:
            against += _against_origin(apis[rank], per_rank[rank], truth)
        elif apis[rank] and not apis[rank][0].node.startswith(("Distributed.", *truth.unseen)):
            against.append(f"not the origin, yet it differs of itself: {apis[rank][0]}")
    return against, seen


def _counts(node: str, truth: Truth) -> bool:
    """Modules enclose what is recorded by itself, except where the dump has nothing else to name.

    The gradient of a parameter stands among modules' names, and for itself.
    """
    return not node.startswith("Module.") or ".parameters_grad." in node or node in truth.operators


def _against_origin(found: list[Difference], everything: list[Difference], truth: Truth) -> list[str]:
    if not found:
        return ["no difference at all"]
    first = found[0]
    against = []
    if everything[0].node not in (*truth.operators, *truth.modules):
        against.append(f"the first of all nodes is another: {everything[0]}")
    if first.node not in truth.operators:
        against.append(f"the first difference is another: {first}")
    if first.step != truth.step:
        against.append(f"it is in step {first.step}")
    known = {one.node for one in everything if one.step == truth.step}
    against += [f"does not differ: {node}" for node in (*truth.operators, *truth.modules) if node not in known]
    return against
