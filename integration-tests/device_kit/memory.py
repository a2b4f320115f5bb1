"""Whether a long watch takes more and more memory, of the device or of the host."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import torch

from device_kit import small_nets
from device_kit.report import Report
from device_kit.setting import Setting
from device_kit.watching import watched

#: Until here pages, copies and layouts are made; what is there then is to be all.
SETTLED = 20

_NAMES = ("allocated", "reserved", "segments", "peak", "host")
_WHATS = {
    "allocated": "memory in use on the device, growth after step 20",
    "reserved": "memory reserved on the device, growth after step 20",
    "segments": "segments of the allocator, growth after step 20",
    "peak": "peak of memory in use on the device, growth after step 20",
    "host": "memory of the host, growth after step 20",
}
_TAKEN = "memory in use on the device that the watch takes"
TITLES = (*_WHATS.values(), _TAKEN)

#: Less is no growth: tables of results are held while they are under way, at times one more than before; a further
#: small segment holds many; the host's allocator keeps what it likes.
_TABLES, _SEGMENT, _HOST = 1 << 20, 2 << 20, 48 << 20
_BOUNDS = {"allocated": _TABLES, "reserved": _SEGMENT, "segments": 1, "peak": _TABLES, "host": _HOST}


@dataclass(frozen=True, slots=True)
class Sample:
    """What is taken at a moment, in bytes; of segments their number."""

    allocated: int
    reserved: int
    segments: int
    peak: int
    host: int


def run(setting: Setting, report: Report) -> None:
    """A row per sort of memory."""
    with report.guard(_WHATS["allocated"]):
        samples = _train(setting, is_watched=True)
        bare = _train(setting, is_watched=False)
        half = len(samples) // 2
        for name in _NAMES:
            if name != "host" and not setting.is_cuda:
                report.skipped(_WHATS[name], "the CPU's memory is the host's")
                continue
            # What comes and goes from step to step is in the largest of either half.
            early, late = (max(getattr(one, name) for one in part) for part in (samples[:half], samples[half:]))
            unit = "" if name == "segments" else "bytes"
            detail = f"{early} until the middle, {late} after it; bare {getattr(bare[-1], name)}"
            report.check(_WHATS[name], late - early <= _BOUNDS[name], late - early, unit, detail)
        if setting.is_cuda:
            report.measured(_TAKEN, max(one.allocated for one in samples) - bare[-1].allocated, "bytes")
        else:
            report.skipped(_TAKEN, "the CPU's memory is the host's")


def _train(setting: Setting, *, is_watched: bool) -> list[Sample]:
    steps = setting.size(200, 36)
    # What an earlier training left is not this one's.
    gc.collect()
    net = small_nets.gpt(setting)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    batches = small_nets.batches(setting, 8)
    samples = []

    def train() -> None:
        for step in range(steps):
            small_nets.step(net, optimizer, batches[step % len(batches)])
            if step == SETTLED and setting.is_cuda:
                torch.cuda.reset_peak_memory_stats()
            if step > SETTLED and step % 5 == 0:
                setting.synchronize()
                samples.append(_sample(setting))

    if is_watched:
        with watched(setting, net, optimizer, "memory"):
            train()
    else:
        train()
    return samples


def _sample(setting: Setting) -> Sample:
    if not setting.is_cuda:
        return Sample(0, 0, 0, 0, _resident())
    known = torch.cuda.memory_stats()
    return Sample(
        torch.cuda.memory_allocated(),
        torch.cuda.memory_reserved(),
        int(known.get("segment.all.current", 0)),
        torch.cuda.max_memory_allocated(),
        _resident(),
    )


def _resident() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return found[0] * 1024 if found else 0
