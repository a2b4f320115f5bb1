"""Whether the host ever waits for the device because of the watch, and how much more it asks of the device."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import torch

from device_kit import small_nets
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.watching import watched

#: Steps before anything is counted: pinned memory is made, and layouts are copied to the device.
WARM = 5
STEPS = 10

#: Steps that are profiled: reading what the profiler found takes longer than they do.
PROFILED = 3

_RAISED = "waits of watched steps, sync debug mode `error`"
_WARNED = "waits of watched steps, sync debug mode `warn`"
_CALLS = "calls that wait, by the profiler, beyond those of a bare step"
_LAUNCHES = "kernels and copies queued by a step"
_ALLOCATIONS = "allocations of device or pinned memory by a step"
TITLES = (_RAISED, _WARNED, _CALLS, _LAUNCHES, _ALLOCATIONS)

#: What torch says of a call that waits.
_SAID = "called a synchronizing"

#: Functions of the CUDA runtime and driver in which the host waits. `cudaMemcpyAsync` from or to pageable memory waits
#: as well, under a name that does not tell.
_WAITING = (
    *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D"),
    *("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"),
)
_QUEUED = ("LaunchKernel", "MemcpyAsync", "MemsetAsync")
_ALLOCATING = ("cudaMalloc", "cudaHostAlloc", "cudaFree", "cudaFreeHost", "cudaMallocAsync", "cudaHostRegister")


def run(setting: Setting, report: Report) -> None:
    """All of it."""
    with report.guard(_RAISED):
        _raise_at_waits(setting, report)
    with report.guard(_WARNED):
        _count_warnings(setting, report)
    with report.guard(_CALLS):
        _profile(setting, report)


@contextlib.contextmanager
def sync_debug_mode(setting: Setting, mode: str) -> Iterator[None]:
    """Torch looks out for waits inside; on a host there are none to look out for."""
    if setting.is_cuda:
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        if setting.is_cuda:
            torch.cuda.set_sync_debug_mode("default")


def _note(setting: Setting) -> str:
    return "" if setting.is_cuda else "on the CPU, where torch looks out for no waits"


def make_steps(setting: Setting, place: str | None, during: Callable[[Callable[[], None]], None]) -> str:
    """Trains: after some steps `during` gets the function that makes one. Watched if there is a `place`. Gives what the
    monitor complained of."""
    net = small_nets.gpt(setting)
    # Torch's own AdamW counts its steps on the host: nothing of it waits.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    batches = iter(small_nets.batches(setting, WARM + 3 * STEPS))

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        small_nets.loss_of(net, batch).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    def train() -> None:
        for _ in range(WARM):
            step()
            setting.synchronize()
        during(step)
        setting.synchronize()

    if place is None:
        train()
        return ""
    with watched(setting, net, optimizer, place) as found:
        train()
    return found.complaint


def _raise_at_waits(setting: Setting, report: Report) -> None:
    """In the training they raise; in a hook of the watch they are caught there, and it complains."""

    def raised(place: str | None) -> tuple[list[str], str]:
        said: list[str] = []

        def during(step: Callable[[], None]) -> None:
            for _ in range(STEPS):
                with sync_debug_mode(setting, "error"):
                    try:
                        step()
                    except RuntimeError as error:
                        said.append(str(error).splitlines()[0])
                setting.synchronize()

        complaint = make_steps(setting, place, during)
        return said, complaint

    bare, _ = raised(None)
    if bare:
        report.skipped(_RAISED, f"{len(bare)} of {STEPS} steps raise without the watch, too: {bare[0]}")
        return
    with_us, complaint = raised("waits_error")
    wrong = [*with_us, *filter(None, [complaint])]
    detail = "; ".join(dict.fromkeys(wrong)) or _note(setting)
    report.check(_RAISED, not wrong, len(with_us), f"of {STEPS} steps", detail)


def _count_warnings(setting: Setting, report: Report) -> None:
    counts = {}
    for name, place in (("bare", None), ("watched", "waits_warn")):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")

            def during(step: Callable[[], None]) -> None:
                for _ in range(STEPS):
                    with sync_debug_mode(setting, "warn"):
                        step()
                    setting.synchronize()

            make_steps(setting, place, during)
        counts[name] = [f"{one.filename}:{one.lineno}" for one in said if _SAID in str(one.message)]
    count, bare = len(counts["watched"]), len(counts["bare"])
    places = ", ".join(f"{number} at {place}" for place, number in Counter(counts["watched"]).most_common(5))
    detail = "; ".join(filter(None, [f"{bare} without the watch", places, _note(setting)]))
    report.check(_WARNED, count <= bare, count, f"in {STEPS} steps", detail)


def _profile(setting: Setting, report: Report) -> None:
    """Counts the calls of the CUDA runtime: also of those waits that torch does not know of."""
    bare, watching = (_calls(setting, place) for place in (None, "waits_profile"))
    if setting.is_cuda and not any("LaunchKernel" in name for name in bare):
        why = "the profiler tells of no calls: no access to the device's counters here, as a rule"
        report.skipped((_CALLS, _LAUNCHES, _ALLOCATIONS), why)
        return
    more = {name: watching[name] - bare[name] for name in _WAITING if watching[name] != bare[name]}
    said = ", ".join(f"{count:+d} {name}" for name, count in more.items())
    extra = sum(more.values())
    report.check(_CALLS, extra <= 0, extra, f"in {PROFILED} steps", said or _note(setting))
    for title, names in ((_LAUNCHES, _QUEUED), (_ALLOCATIONS, _ALLOCATING)):
        without, with_us = (_count(calls, names) / PROFILED for calls in (bare, watching))
        report.measured(title, with_us, "per step", f"{without:.1f} without the watch")


def _count(calls: Counter[str], names: tuple[str, ...]) -> int:
    """Kernels are launched by functions of several names; allocating ones are given whole."""
    parts = [name for name in names if name in _QUEUED]
    return sum(count for name, count in calls.items() if name in names or any(part in name for part in parts))


def _calls(setting: Setting, place: str | None) -> Counter[str]:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if setting.is_cuda else [])]
    counts: Counter[str] = Counter()

    def during(step: Callable[[], None]) -> None:
        with profile(activities=activities) as found:
            for _ in range(setting.size(PROFILED, 1)):
                step()
        for event in found.key_averages():
            if event.key.startswith("cu"):
                counts[event.key] += event.count

    make_steps(setting, place, during)
    return counts
