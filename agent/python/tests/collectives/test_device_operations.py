"""Operations on a device, of which a clock tells when they have ended: a made-up one, for there is no device here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from support.waiting import eventually
from trainmon._trainmon import Collectives, Monitor, ParsedConfig


class OnDevice(torch.Tensor):
    """Says that it lies on a device."""

    is_cuda = True  # type: ignore[assignment]


class Clock:
    """A device that comes past an operation's end when it is told to."""

    def __init__(self) -> None:
        self.is_recording_graph = False
        self.ended: set[int] = set()
        self.begun = 0
        #: How often it was asked for times.
        self.asked = 0

    def is_capturing(self) -> bool:
        return self.is_recording_graph

    def begin(self) -> int:
        self.begun += 1
        return self.begun

    def end(self, clock: int) -> bool:
        return True

    def seconds(self, clock: int) -> float | None:
        assert not self.is_recording_graph
        self.asked += 1
        return 0.001 if clock in self.ended else None


class Group:
    """Of two ranks."""


GROUP = Group()


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Monitor, Collectives, Clock]:
    config = ParsedConfig(
        '{"cc_distribution": {"enable": true, "cc_payload": false}, "format": "csv", "ops": ["norm"]}'
    )
    monitor = Monitor.start(config, rank=0, world_size=2, output_dir=str(tmp_path))
    clock = Clock()

    def failed(error: BaseException) -> None:
        raise AssertionError from error

    made = monitor.collectives(lambda _: ("dp", "dp", [0, 1], 0), failed, device_clock=clock)
    return monitor, made, clock


def operation(collectives: Collectives) -> None:
    tensor: Any = torch.ones(4).as_subclass(OnDevice)
    call = collectives.begin("all_reduce", GROUP, [tensor], None, in_place=True)
    assert call is not None
    call.ended()


def numbers(monitor: Monitor) -> list[int]:
    return [one[3] for one in monitor.open_collectives()]


def begun_until(collectives: Collectives, monitor: Monitor, oldest: int) -> None:
    """An evaluation: operations begin, and no step ends."""

    def is_oldest() -> bool:
        operation(collectives)
        return numbers(monitor)[0] >= oldest

    eventually(is_oldest, pause=0.05, what=f"operation {oldest}")


def test_what_the_device_has_come_past_is_not_in_progress_though_no_step_ends(
    watched: tuple[Monitor, Collectives, Clock],
) -> None:
    monitor, collectives, clock = watched
    for _ in range(5):
        operation(collectives)
    assert numbers(monitor) == [1, 2, 3, 4, 5]
    clock.ended = {1, 2, 3}
    begun_until(collectives, monitor, 4)
    # What the device is still inside of stays.
    assert numbers(monitor)[:2] == [4, 5]
    assert not {1, 2, 3} & set(numbers(monitor))


def test_it_is_asked_seldom_of_few_and_never_while_a_graph_is_recorded(
    watched: tuple[Monitor, Collectives, Clock],
) -> None:
    monitor, collectives, clock = watched
    operation(collectives)
    clock.is_recording_graph = True
    began = time.monotonic()
    while time.monotonic() < began + 1.2:
        operation(collectives)
        time.sleep(0.05)
    assert clock.asked == 0
    clock.is_recording_graph = False
    before = time.monotonic()
    eventually(lambda: operation(collectives) or clock.asked, pause=0.001)
    for _ in range(500):
        operation(collectives)
    looks = 1 + int(time.monotonic() - before)
    assert clock.asked <= 16 * looks
    assert numbers(monitor)[0] == 1
