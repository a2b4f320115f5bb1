"""What a row must show: computed on the host with torch alone, in float64; and how far a row is from it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from device_kit.report import Report
from device_kit.watching import EPS, Row

#: The relative error that is allowed: both sides add up in float64, in another order.
BOUND = 1e-6

Statistics = dict[str, float]


def statistics(tensor: torch.Tensor, factor: float = 1.0) -> Statistics:
    """Every statistic of a tensor, each element times `factor`."""
    there = tensor.detach().cpu()
    wide = _magnitudes(there).flatten() * factor
    count = wide.numel()
    if count == 0:
        nothing = dict.fromkeys(("min", "max", "mean", "std", "zeros"), math.nan)
        return {**nothing, "norm": 0.0, "nans": 0.0, "infs": 0.0, "count": 0.0}
    mean = float(wide.mean())
    spread = float((wide - mean).square().sum())
    return {
        "min": float(wide.amin()),
        "max": float(wide.amax()),
        "mean": mean,
        "norm": float(wide.square().sum().sqrt()),
        "std": math.sqrt(spread / (count - 1)) if count > 1 else math.nan,
        "nans": float(wide.isnan().sum()),
        "infs": float(wide.isinf().sum()),
        "zeros": math.nan if there.dtype == torch.bool else float((wide.abs() < zero_bound(there.dtype)).sum()) / count,
        "count": float(count),
    }


def _magnitudes(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_complex():
        return tensor.to(torch.float64)
    wide = tensor.to(torch.complex128)
    return wide.abs().masked_fill(wide.isnan(), math.nan)


def zero_bound(dtype: torch.dtype) -> float:
    """Values of float32 and narrower are compared in float32."""
    if dtype.is_floating_point and dtype != torch.float64:
        return float(struct.unpack("f", struct.pack("f", EPS))[0])
    return EPS


def error_of(name: str, found: float, truth: Statistics) -> float:
    """How far a statistic is from the truth, relative to that; infinite where it must be the same and is not."""
    expected, count = truth[name], truth["count"]
    if name == "zeros" and not math.isnan(expected):
        return 0.0 if round(found * count) == round(expected * count) else math.inf
    if math.isnan(expected):
        return 0.0 if math.isnan(found) else math.inf
    if name in ("nans", "infs") or math.isinf(expected) or not math.isfinite(found):
        return 0.0 if found == expected else math.inf
    # Of numbers that cancel out, rounding is what is left.
    size = truth["norm"] / math.sqrt(count) if count and math.isfinite(truth["norm"]) else 0.0
    least = size * {"mean": 1e-6, "std": 1e-8}.get(name, 0.0)
    scale = max(abs(expected), least)
    if scale == 0.0:
        return 0.0 if found == 0.0 else math.inf
    return abs(found - expected) / scale


def number(text: str) -> float:
    """A cell of a CSV file; those of truth values are words."""
    return float(text == "True") if text in ("True", "False") else float(text)


@dataclass(slots=True)
class Comparison:
    """Gathers how far many rows are from the truth."""

    count: int = 0
    worst: float = 0.0
    where: str = ""
    missing: list[str] = field(default_factory=list)

    def row(self, what: str, found: Row | None, truth: Statistics) -> None:
        """Compares every statistic of a row."""
        if found is None:
            self.missing.append(what)
            return
        for name in truth:
            if name != "count":
                text = found.get(name, "nan")
                error = error_of(name, number(text), truth)
                self._take(f"{what}: {name} is {text}, and {truth[name]!r} in truth", error)

    def value(self, what: str, found: str | None, expected: float, least: float = 0.0) -> None:
        """Compares one number."""
        if found is None or found == "":
            self.missing.append(what)
            return
        scale = max(abs(expected), least)
        got = number(found)
        if not math.isfinite(expected) or scale == 0.0:
            error = 0.0 if got == expected or (math.isnan(expected) and math.isnan(got)) else math.inf
        else:
            error = abs(got - expected) / scale
        self._take(f"{what} is {found}, and {expected!r} in truth", math.inf if math.isnan(error) else error)

    def _take(self, what: str, error: float) -> None:
        self.count += 1
        if error > self.worst or math.isnan(error):
            self.worst, self.where = error, what

    def tell(self, report: Report, what: str, complaint: str = "", bound: float = BOUND) -> None:
        """The row of the table: the largest error, of how many values, and where that is."""
        holds = self.count > 0 and self.worst <= bound and not self.missing and not complaint
        said = [f"{self.count} values compared, bound {bound:g}"]
        if self.missing:
            said.append(f"{len(self.missing)} rows are missing, such as {self.missing[0]}")
        if self.worst > bound:
            said.append(self.where)
        if complaint:
            said.append(complaint)
        value = self.worst if math.isfinite(self.worst) else "unequal"
        report.check(what, holds, value, "relative error", "; ".join(said))


def by_name(rows: list[Row], step: int) -> Mapping[str, Row]:
    """The rows of one step."""
    return {row["name"]: row for row in rows if int(row["step"]) == step}
