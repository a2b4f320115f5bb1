"""Numbers of tensors on a device, on the CPU's own memory: those of the host, later, and nothing that waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import trainmon
from support.captures import entries
from trainmon.captures.devices import DeviceNumbers
from trainmon.device.streams import Streams


def elsewhere() -> list[torch.Tensor]:
    """Tensors that are not read in place: a stand-in for those on a device."""
    numbers = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    many = [1] * 9
    return [
        numbers.reshape(*many, 3, 4),
        torch.arange(12).reshape(*many, 12),
        numbers.bfloat16().reshape(*many, 12),
        (numbers > 0).reshape(*many, 12),
        torch.tensor([1.0, float("nan")]).reshape(*many, 2),
        torch.complex(numbers, numbers).conj(),
        numbers.double().reshape(*many, 12),
    ]


@pytest.mark.parametrize("precision", ["high", "low"])
def test_numbers_of_a_device_are_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    def run(place: Path) -> dict[str, Any]:
        with trainmon.capture(dump_path=str(place), level="L1", risk_level="ALL", precision=precision):
            for tensor in elsewhere():
                tensor.mul(1)
        return entries(place)

    host = run(tmp_path / "host")
    monkeypatch.setattr(DeviceNumbers, "takes", lambda _self, _tensor: True)
    taken: list[int] = []
    take_up = DeviceNumbers.take_up
    monkeypatch.setattr(DeviceNumbers, "take_up", lambda self, tensor: taken.append(1) or take_up(self, tensor))
    device = run(tmp_path / "device")
    assert len(taken) >= 2 * (len(elsewhere()) - 1)
    assert list(device) == list(host)
    for name, entry in host.items():
        for part in ("input_args", "output"):
            for ours, theirs in zip(device[name][part], entry[part], strict=True):
                assert list(ours) == list(theirs)
                for key, value in theirs.items():
                    expected = pytest.approx(value, rel=1e-6, nan_ok=True) if isinstance(value, float) else value
                    assert ours[key] == expected, (name, part, key)


class Slow(Streams):
    """Delivers when it is told to."""

    is_done = False

    def copy(self, host: torch.Tensor, device: torch.Tensor, marks: list[Any]) -> Any:
        host.copy_(device)
        return self

    def query(self) -> bool:
        return Slow.is_done


class Heard:
    """What a capture is told."""

    def __init__(self) -> None:
        self.numbers: dict[int, list[float]] = {}
        self.notes: list[str] = []

    def fill_numbers(self, tickets: list[int], rows: list[list[float]]) -> None:
        self.numbers.update(zip(tickets, rows, strict=True))

    def note(self, _what: str, message: str) -> None:
        self.notes.append(message)


def test_nothing_is_read_before_the_device_has_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    queue = DeviceNumbers(heard, lambda _device: Slow())
    tensor = torch.ones(4)
    with monkeypatch.context() as patching:
        for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__"):
            patching.setattr(torch.Tensor, name, lambda *_arguments: pytest.fail("the host waits"))
        for number in range(1500):
            assert queue.take_up(tensor) == (number, 4)
            tensor.add_(1)
    assert not heard.numbers
    Slow.is_done = True
    queue.finish()
    Slow.is_done = False
    assert len(heard.numbers) == 1500
    assert [heard.numbers[number][1] for number in (0, 1, 1499)] == [1.0, 2.0, 1500.0], "each as it was then"


def test_a_device_that_never_answers_costs_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmon.captures.devices.PATIENCE_S", 0.0)
    heard = Heard()
    queue = DeviceNumbers(heard, lambda _device: Slow())
    queue.take_up(torch.ones(2))
    queue.finish()
    assert not heard.numbers
    assert len(heard.notes) == 1
