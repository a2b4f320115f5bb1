"""What the host does in a step to measure tensors that lie on a device: finding them, the table, the launches, and the
rows when they arrive. The device's own work is left out: a stand-in takes the driver's place, and any machine will do.

    python device_host.py [--json FILE]

Shown are medians of a step's microseconds for so many tensors, each of them where it was in the step before. Beside
them stands the least that anybody pays who asks Python for as many addresses: one `data_ptr()` each. The last column
counts how often torch asked for memory in as many steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from trainmon._trainmon import Monitor
from trainmon.common.kinds import Kind
from trainmon.device import DeviceQueue, launchers
from trainmon.device.measurer import Measurer
from trainmon.measurement.labels import Label
from trainmon.watches import startup

WARM, STEPS = 5, 25


class StandIn:
    """The driver, without a device: nothing is launched."""

    def measure(self, *_arguments: Any, **_more: Any) -> int:
        return 2

    def copy(self, *_arguments: Any) -> int:
        return 1

    def fingerprint(self, *_arguments: Any) -> int:
        return 2


def memory_asked_for(body: Callable[[], Any]) -> int:
    """How often torch asks for memory."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        body()
    return sum(event.name == "[memory]" and event.self_cpu_memory_usage > 0 for event in seen.events())


def microseconds(seconds: list[float]) -> float:
    return round(1e6 * statistics.median(seconds), 1)


def timed(body: Callable[[], Any], into: list[float]) -> None:
    start = time.perf_counter()
    body()
    into.append(time.perf_counter() - start)


class Step:
    """A watch's step with as many parameters, as `measure_all` is shown them."""

    def __init__(self, count: int, monitor: Monitor) -> None:
        self.monitor = monitor
        tensors = [torch.nn.Parameter(torch.ones(8, 8)) for _ in range(count)]
        labels = [Label(monitor.register(f"layer.{place}", 0), Kind.PARAM_ORIGIN) for place in range(count)]
        self.shown = list(zip(labels, tensors, strict=True))
        queue = DeviceQueue(monitor, kernels=lambda _device: StandIn())
        self.measurer = Measurer(monitor, lambda _monitor: queue, device_only=True)
        self.parts: dict[str, list[float]] = {"take up": [], "launch": [], "end of step": [], "rows": []}

    def run(self) -> None:
        measurer = self.measurer
        timed(lambda: measurer.measure_all(self.shown), self.parts["take up"])
        timed(measurer.launch, self.parts["launch"])
        timed(measurer.close_step, self.parts["end of step"])
        self.monitor.end_step()
        timed(measurer.collect, self.parts["rows"])

    def addresses(self) -> None:
        for _, tensor in self.shown:
            tensor.data_ptr()


def measured(count: int) -> dict[str, float]:
    config = {"targets": {}, "format": "csv", "ops": ["min", "max", "mean", "norm"], "param_distribution": True}
    with tempfile.TemporaryDirectory() as place:
        monitor = startup.start_monitor(config, output_dir=place, rank=0, quiet=True)
        step = Step(count, monitor)
        for _ in range(WARM):
            step.run()
        for part in step.parts.values():
            part.clear()
        floor: list[float] = []
        for _ in range(STEPS):
            step.run()
            timed(step.addresses, floor)
        asked = memory_asked_for(lambda: [step.run() for _ in range(STEPS)])
        monitor.shutdown()
    found = {name: microseconds(part[:STEPS]) for name, part in step.parts.items()}
    return {**found, "data_ptr() of each": microseconds(floor), "memory asked for": asked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", type=Path, help="writes the figures here, too")
    options = parser.parse_args()
    # The stand-in measures nothing: that its numbers are wrong is known.
    launchers._what_differs = lambda _check: None
    results = {count: measured(count) for count in (100, 2000, 10000)}
    columns = list(results[100])
    print("tensors".rjust(8), *(name.rjust(max(12, len(name))) for name in columns))
    for count, row in results.items():
        print(f"{count:8}", *(f"{row[name]:{max(12, len(name))}}" for name in columns))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
