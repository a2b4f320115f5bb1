"""Tensors of every dtype and layout, each measured on the device and held against torch's float64 on the host."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.truth import Comparison, Statistics, by_name, statistics, zero_bound
from device_kit.watching import heard, rows_of, start_monitor

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_EIGHT = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_OTHERS = ("int8", "int64", "uint8", "uint16", "bool", "complex64")

_HUGE = ("bfloat16, more than 2^31 elements", "bfloat16, more than 2^31 elements, every second one")

TITLES = (*(f"values of {name}" for name in (*_FLOATS, *_EIGHT, *_OTHERS)), *(f"values of {name}" for name in _HUGE))

#: What the largest tensors need besides themselves: pieces of both sides in float64.
_ROOM = 4 << 30


def run(setting: Setting, report: Report) -> None:
    """One row per dtype, and two for tensors whose elements no 32-bit number counts."""
    for name in (*_FLOATS, *_EIGHT, *_OTHERS):
        with report.guard(f"values of {name}"):
            if hasattr(torch, name):
                _measure(setting, report, name, dict(samples(setting, getattr(torch, name))))
            else:
                report.skipped(f"values of {name}", f"torch {torch.__version__} has no such dtype")
    for name, stride in zip(_HUGE, (1, 2), strict=True):
        with report.guard(f"values of {name}"):
            _measure_huge(setting, report, name, stride)


def samples(setting: Setting, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a dtype on the device. Small ones are gathered, large ones cut into pieces."""
    random = torch.Generator().manual_seed(3)
    base = torch.randn(37, 29, generator=random)
    if not (dtype.is_floating_point or dtype.is_complex):
        base = (base * 20).abs()
    base[0, 0] = 0.0

    def there(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype).to(setting.device)

    yield "plain", there(base)
    yield "single", there(torch.tensor(2.5))
    yield "one", there(torch.tensor([[7.0]]))
    yield "empty", there(torch.empty(3, 0))
    yield "constant", there(torch.full((1000,), 3.0))
    yield "transposed", there(base).t()
    yield "strided", there(base)[::3, 1::2]
    yield "expanded", there(base[:, :1]).expand(37, 11)
    yield "off its beginning", there(base.flatten())[3:]
    picture = torch.randn(2, 3, 5, 7, generator=random).abs().to(dtype)
    yield "channels last", picture.contiguous(memory_format=torch.channels_last).to(setting.device)
    large = torch.randn(300, 701, generator=random).abs()
    yield "large", there(large)
    yield "large, transposed", there(large).t()
    yield "large, strided", there(large)[:, ::2]
    if not setting.is_dry:
        # In the dry form the huge ones are as large as this.
        yield "in pieces", there(torch.randn(2, 4_500_001, generator=random).abs())
    if dtype.is_floating_point:
        yield from _odd(there, base, large, dtype)


def _odd(there: Any, base: torch.Tensor, large: torch.Tensor, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """NaN, infinity, and numbers too small for the exponent."""
    for size, whole in (("", base), ("large, ", large)):
        for name, bad in (("NaN", [math.nan]), ("infinite", [math.inf]), ("both infinities", [math.inf, -math.inf])):
            spoilt = whole.clone()
            spoilt.view(-1)[5 : 5 + len(bad)] = torch.tensor(bad)
            yield f"{size}{name}", there(spoilt)
    yield "near zero", there(torch.tensor([1e-9, -1e-8, 1e-8, 2e-8, 0.0]))
    smallest = torch.finfo(dtype).smallest_normal
    yield "denormal", there(torch.tensor([smallest / 2, -smallest / 4, smallest, 0.0, 1.0], dtype=torch.float64))


def _measure(setting: Setting, report: Report, dtype: str, tensors: dict[str, torch.Tensor]) -> None:
    compared = Comparison()
    rows, complaint = _rows(setting, f"dtype_{dtype}", tensors)
    for name, tensor in tensors.items():
        compared.row(name, rows.get(name), statistics(tensor))
    compared.tell(report, f"values of {dtype}", complaint)


def _rows(setting: Setting, place: str, tensors: dict[str, torch.Tensor]) -> tuple[dict[str, Any], str]:
    """The rows of these tensors in one step, and what the monitor says went wrong."""
    from trainmon.common.kinds import Kind
    from trainmon.device import DeviceQueue
    from trainmon.measurement.labels import UNSCALED, Label

    said: list[str] = []
    with heard(said):
        monitor = start_monitor(setting.scratch / place)
        queue = DeviceQueue(monitor)
        for name, tensor in tensors.items():
            queue.enqueue(Label(monitor.register(name, 0), Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
        queue.close_step()
        monitor.end_step()
        queue.finish(30.0)
        monitor.shutdown()
    lost = monitor.counts()["not_sampled"]
    wrong = [*([f"{lost} readings are missing"] if lost else []), *said]
    return dict(by_name(rows_of(setting.scratch / place, "param_origin"), 0)), "; ".join(wrong)


def _measure_huge(setting: Setting, report: Report, name: str, stride: int) -> None:
    count = setting.size((1 << 31) + 4099, (4 << 20) + 4099)
    if setting.is_cuda:
        needed, free = 2 * count * stride + _ROOM, torch.cuda.mem_get_info()[0]
        if free < needed:
            report.skipped(f"values of {name}", f"it takes {needed >> 30} GiB, and {free >> 30} GiB are free")
            return
    whole = torch.empty(count * stride, dtype=torch.bfloat16, device=setting.device)
    generator = torch.Generator(setting.device).manual_seed(5)
    for part in whole.split(1 << 28):
        part.normal_(generator=generator)
    tensor = whole[::stride]
    # Beyond what 31 bits count, where there is so much.
    tensor[-1], tensor[-7], tensor[11] = 300.0, -400.0, 0.0
    rows, complaint = _rows(setting, f"huge_{stride}", {"huge": tensor})
    compared = Comparison()
    compared.row("huge", rows.get("huge"), _statistics_by_parts(tensor))
    compared.tell(report, f"values of {name}", complaint)
    del whole, tensor
    if setting.is_cuda:
        torch.cuda.empty_cache()


def _statistics_by_parts(tensor: torch.Tensor, size: int = 50_000_017) -> Statistics:
    """As `statistics`, on the device, for the host would take minutes. Nothing in it is infinite or NaN."""
    parts = [tensor[start : start + size] for start in range(0, tensor.numel(), size)]
    count = float(tensor.numel())
    bound = zero_bound(tensor.dtype)
    found = {"min": math.inf, "max": -math.inf, "sum": 0.0, "squares": 0.0, "zeros": 0.0, "spread": 0.0}
    for part in parts:
        wide = part.double()
        found["min"], found["max"] = min(found["min"], float(wide.amin())), max(found["max"], float(wide.amax()))
        found["sum"] += float(wide.sum())
        found["squares"] += float(wide.square().sum())
        found["zeros"] += float((wide.abs() < bound).sum())
    mean = found["sum"] / count
    for part in parts:
        found["spread"] += float((part.double() - mean).square().sum())
    return {
        **{name: found[name] for name in ("min", "max")},
        "mean": mean,
        "norm": math.sqrt(found["squares"]),
        "std": math.sqrt(found["spread"] / (count - 1)),
        "zeros": found["zeros"] / count,
        "nans": 0.0,
        "infs": 0.0,
        "count": count,
    }
