"""What reading costs at least, and what measuring gradients and moments costs above that, whoever does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from device_kit.rates import Times, timed
from device_kit.report import Report
from device_kit.setting import Setting

#: As the watch measures where nothing else is said.
OPS = ("min", "max", "mean", "norm", "nans")

DTYPES = ("bfloat16", "float32")

#: Of a GPT with 1.01 billion parameters, and of one for the dry form: width, layers, vocabulary, length.
_REAL = (2048, 16, 50304, 1024)
_DRY = (32, 2, 128, 16)

#: Read at a time to find the peak: far more than a cache holds, and fewer elements than 2^31.
_BUFFER_BYTES = 2 << 30

_READ = "reading memory: GB/s at best"
_COPY = "copying memory on the device: GB/s, reads and writes"
_OURS, _NORMS, _TORCH = "trainmon", "torch, norms alone (_foreach_norm)", "torch, all five statistics"
_MSPROBE, _OPERATORS = "msprobe", "trainmon with torch's operators"
_CONTENDERS = (_OURS, _OPERATORS, _NORMS, _TORCH, _MSPROBE)
#: Over the floor, at most.
_GOAL = 1.3

TITLES = (
    _READ,
    _COPY,
    *(f"gradients and moments in {dtype}, {who}" for dtype in DTYPES for who in ("floor", *_CONTENDERS)),
)

#: The bytes per second that memory is read with, at best.
Peak = float


def run(setting: Setting, report: Report) -> None:
    """The floor, and then each dtype."""
    peak: Peak | None = None
    with report.guard(_READ):
        peak = _peak(setting, report)
    with report.guard(_COPY):
        _copy(setting, report)
    for dtype in DTYPES:
        with report.guard(f"gradients and moments in {dtype}"):
            _measure_all(setting, report, dtype, peak)
        if setting.is_cuda:
            import torch

            # What a contender left belongs to the next dtype.
            torch.cuda.empty_cache()


# Memory alone.


def _peak(setting: Setting, report: Report) -> Peak:
    """The fastest way to read a large buffer, of torch's sum and the kit's own kernel."""
    import torch

    words = setting.size(_BUFFER_BYTES, 1 << 16) // 4
    buffer = torch.ones(words, dtype=torch.int32, device=setting.device)
    buffer[::97] = 3
    rates: dict[str, float] = {}
    # Of float32: sums of integers are made in 64 bits.
    numbers = buffer.view(torch.float32)
    rates["torch.sum"] = buffer.nbytes / timed(setting, numbers.sum, setting.size(30, 3)).device
    said = []
    if setting.is_cuda:
        try:
            rates |= _rates_of_kernels(setting, buffer)
        except Exception as error:  # Triton needs a C compiler: without it torch's sum is the floor
            said.append(f"no kernel of the kit: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    best = max(rates, key=lambda name: rates[name])
    said += [f"{name}: {rate / 1e9:.0f}" for name, rate in rates.items()]
    report.measured(_READ, round(rates[best] / 1e9, 1), "GB/s", f"{best}; {buffer.nbytes} bytes; {'; '.join(said)}")
    return rates[best]


def _rates_of_kernels(setting: Setting, buffer: Any) -> dict[str, float]:
    from device_kit.kernels import WAYS, Reader

    found = {}
    for way in WAYS:
        reader = Reader(buffer, way)
        times = timed(setting, reader, 30)
        if not reader.has_read_all():
            raise RuntimeError(f"the kernel {way} did not read every element")
        found[f"kernel {way.block}/{way.warps}/{way.per_processor}"] = reader.nbytes / times.device
    return found


def _copy(setting: Setting, report: Report) -> None:
    import torch

    source = torch.ones(setting.size(_BUFFER_BYTES, 1 << 16), dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    times = timed(setting, lambda: target.copy_(source), setting.size(30, 3))
    report.measured(_COPY, round(2 * source.nbytes / times.device / 1e9, 1), "GB/s", f"{source.nbytes} bytes copied")


# The tensors of a training.


def shapes_of_gpt(width: int, layers: int, vocabulary: int, length: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The parameters of a GPT with an untied head, by name."""
    yield from (("tokens.weight", (vocabulary, width)), ("positions.weight", (length, width)))
    linear = {"qkv": (3, 1), "out": (1, 1), "fc1": (4, 1), "fc2": (1, 4)}
    for layer in range(layers):
        for norm in ("ln1", "ln2"):
            yield from ((f"layers.{layer}.{norm}.{part}", (width,)) for part in ("weight", "bias"))
        for name, (out, into) in linear.items():
            yield f"layers.{layer}.{name}.weight", (out * width, into * width)
            yield f"layers.{layer}.{name}.bias", (out * width,)
    yield from (("ln.weight", (width,)), ("ln.bias", (width,)), ("head.weight", (vocabulary, width)))


#: Tensors by the kind of their record and the parameter's name.
Tensors = dict[tuple[str, str], Any]

_KINDS = ("grad_reduced", "exp_avg", "exp_avg_sq")


def _tensors(setting: Setting, dtype: str) -> Tensors:
    import torch

    made: Tensors = {}
    for kind in _KINDS:
        for name, shape in shapes_of_gpt(*setting.size(_REAL, _DRY)):
            one = torch.empty(shape, dtype=getattr(torch, dtype), device=setting.device).normal_(0, 1e-2)
            made[kind, name] = one.square_() if kind == "exp_avg_sq" else one
    return made


def _measure_all(setting: Setting, report: Report, dtype: str, peak: Peak | None) -> None:
    title = f"gradients and moments in {dtype}"
    tensors = _tensors(setting, dtype)
    nbytes = sum(one.nbytes for one in tensors.values())
    every = list(tensors.values())
    sums = timed(setting, lambda: [one.sum() for one in every], setting.size(7, 3))
    floor = sums.device if peak is None else nbytes / peak
    elements = sum(one.numel() for one in every)
    said = f"{nbytes} bytes, {elements} elements, {len(every)} tensors; torch.sum of each: {1e3 * sums.device:.3f} ms"
    report.measured(f"{title}, floor", round(1e3 * floor, 4), "ms", said)
    for who, contend in _RACE.items():
        with report.guard(f"{title}, {who}"):
            contend(setting, report, f"{title}, {who}", tensors, floor)


def _tell(report: Report, title: str, times: Times, floor: float, detail: str = "") -> None:
    """A contender's three figures."""
    span = f"{1e3 * times.span:.3f} ms where the device waits for the host; {times.extra_bytes} bytes of memory more"
    report.measured(f"{title}, device", round(1e3 * times.device, 4), "ms", "; ".join(filter(None, (span, detail))))
    report.measured(f"{title}, host", round(1e3 * times.host, 4), "ms", "until the calls return")
    report.measured(f"{title}, device over floor", round(times.device / floor, 2), "times the floor")


# Who measures.


def _kernels(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float) -> None:
    """As a watch measures."""
    times = _trainmon(setting, report, title, tensors, floor, switch="1")
    if setting.is_cuda:
        ratio = round(times.device / floor, 2)
        report.check(f"{title}, at most {_GOAL} times the floor", ratio <= _GOAL, ratio, "times the floor")


def _operators(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float) -> None:
    """As a watch measures where there are no kernels."""
    _trainmon(setting, report, title, tensors, floor, switch="0")


def _trainmon(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float, *, switch: str) -> Times:
    """The queue of a watch: what its hooks show it, its launches, the way of the rows to the host, their delivery."""
    from trainmon.common.kinds import kind_of
    from trainmon.device import DeviceQueue

    from device_kit.watching import heard

    warnings: list[str] = []
    os.environ["TRAINMON_DEVICE_KERNELS"] = switch
    with heard(warnings):
        monitor = _monitor(setting.scratch / title.replace(" ", "-").replace(",", ""))
        queue = DeviceQueue(monitor)
        shown = [((monitor.register(name, 0), kind_of(kind), 0), one) for (kind, name), one in tensors.items()]

        def once() -> None:
            queue.enqueue_all(shown)
            queue.close_step()
            monitor.end_step()
            queue.collect()

        try:
            times = timed(setting, once, setting.size(8, 3))
            setting.synchronize()
            queue.finish(10.0)
        finally:
            os.environ.pop("TRAINMON_DEVICE_KERNELS", None)
            monitor.shutdown()
    _tell(report, title, times, floor)
    counts = monitor.counts()
    lost = counts["not_sampled"] + counts["dropped"]
    is_whole = counts["observed"] == monitor.step * len(shown) and lost == 0 and not warnings
    detail = "; ".join([f"{counts}", *warnings])
    report.check(f"{title}, every row arrived", is_whole, counts["observed"], "rows", detail)
    return times


def _monitor(place: Path) -> Any:
    from trainmon.watches import startup

    # Every step's rows wait there for the file's writer, who is slower than these steps.
    config = {"wg_distribution": True, "mv_distribution": True, "ops": list(OPS), "format": "csv", "queue_steps": 1000}
    return startup.start_monitor(config, output_dir=str(place), rank=0, quiet=True)


def _norms(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float) -> None:
    """The least that anybody asks for, with the fewest launches that torch has for it."""
    import torch

    every = list(tensors.values())
    times = timed(setting, lambda: torch.stack(torch._foreach_norm(every, 2, torch.float32)), setting.size(8, 3))
    _tell(report, title, times, floor)


def _torch(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float) -> None:
    """What a careful user writes: no copy in another dtype, one launch for many tensors where torch has that, and one
    table at the end."""
    import torch

    every = list(tensors.values())

    @torch.no_grad()
    def once() -> Any:
        norms = torch._foreach_norm(every, 2, torch.float32)
        extremes = [number.float() for one in every for number in torch.aminmax(one)]
        means = [one.mean(dtype=torch.float32) for one in every]
        nans = [one.isnan().sum().float() for one in every]
        return torch.stack([*norms, *extremes, *means, *nans])

    _tell(report, title, timed(setting, once, setting.size(8, 3)), floor)


def _msprobe(setting: Setting, report: Report, title: str, tensors: Tensors, floor: float) -> None:
    """What its monitor calls with a step's tensors. Bringing the numbers to the host, and its files, are left out."""
    from device_kit.beside import why_no_msprobe

    why = why_no_msprobe()
    if why is not None:
        report.skipped(title, why)
        return
    from msprobe.pytorch.monitor.module_metric import get_metrics

    tagged = {f"{name}/{kind}": one for (kind, name), one in tensors.items()}
    times = timed(setting, lambda: get_metrics(list(OPS), tagged, 1e-8), setting.size(5, 3))
    _tell(report, title, times, floor, "without the way to the host")


#: What each contender is measured by; takes the tensors and the floor in seconds, and tells of itself.
_RACE: dict[str, Callable[[Setting, Report, str, Tensors, float], None]] = {
    _OURS: _kernels,
    _OPERATORS: _operators,
    _NORMS: _norms,
    _TORCH: _torch,
    _MSPROBE: _msprobe,
}
