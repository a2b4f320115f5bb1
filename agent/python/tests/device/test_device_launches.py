"""Tensors of a device launched together: what fits and what does not, kernels that fail, the records that rows
become."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from support import runs
from support.interpreted import InterpretedKernels
from support.layouts import READABLE
from trainmon._trainmon import DEVICE_COLUMNS, DeviceTables, Monitor
from trainmon.common.kinds import Kind
from trainmon.device import DeviceQueue
from trainmon.device.launchers import NoKernelsError, kernels_of
from trainmon.measurement.norm import StepNorm
from trainmon.watches import startup

EPS = 1e-8


def start(tmp_path: Path, heard: list[str], **config: Any) -> Monitor:
    chosen = {
        "targets": {},
        "format": "csv",
        "ops": [*DEVICE_COLUMNS],
        "eps": EPS,
        "param_distribution": True,
        **config,
    }
    return startup.start_monitor(
        chosen, output_dir=str(tmp_path), rank=0, listener=lambda _, text, __: heard.append(text)
    )


class Broken(InterpretedKernels):
    """Kernels that a driver refuses from some launch on, or that measure wrong."""

    def __init__(self, after: int, *, adds: float = 0.0) -> None:
        super().__init__()
        self.left, self.adds = after, adds

    def measure(self, table: Any, memory: tuple[int, int, int], *others: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("cuLaunchKernel failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        launched = super().measure(table, memory, *others)
        reading = torch.frombuffer((ctypes.c_double * 8).from_address(memory[2]), dtype=torch.float64)
        reading += self.adds
        return launched


class Reprinting(InterpretedKernels):
    """Kernels whose fingerprints are others."""

    def fingerprint(self, rows: tuple[int, int], chunks: tuple[int, int], sums: int, out: int, stream: int) -> int:
        launched = super().fingerprint(rows, chunks, sums, out, stream)
        ctypes.c_int64.from_address(out).value ^= 1
        return launched


class Miscopying(InterpretedKernels):
    """Kernels that leave an element out."""

    def copy(self, table: Any, words: int, stream: int) -> int:
        launched = super().copy(table, words, stream)
        target = ctypes.c_int64.from_address(words + 8).value
        ctypes.c_int32.from_address(target).value ^= 1
        return launched


def shown_to(
    queue: DeviceQueue, monitor: Monitor, names: str = "a b c", kind: int = Kind.PARAM_ORIGIN
) -> dict[str, int]:
    """A tensor of each name, with as many elements as its place says, of one, two and so on."""
    ids = {name: monitor.register(name, 0) for name in names.split()}
    shown = [((one, kind, 0), torch.full((place,), float(place))) for place, one in enumerate(ids.values(), 1)]
    queue.enqueue_all(shown)
    return ids


def rows_written(queue: DeviceQueue, monitor: Monitor, tmp_path: Path, kind: str = "param_origin") -> dict[str, float]:
    queue.close_step()
    monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), kind)
    return {row["name"]: float(row["norm"]) for row in found}


EXPECTED = {"a": 1.0, "b": math.sqrt(8), "c": math.sqrt(27)}


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        (lambda: Broken(99), ""),
        (lambda: Broken(0), "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        (lambda: Broken(1), "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        (lambda: Broken(99, adds=0.5), "they measure a known tensor incorrectly: min of tensor 0 is "),
        (Reprinting, "they measure a known tensor incorrectly: its fingerprint differs"),
        (Miscopying, "they measure a known tensor incorrectly: its copy differs"),
        (lambda: Broken(99, adds=math.nan), "they measure a known tensor incorrectly: min of tensor 0 is nan, not "),
    ],
    ids=["fine", "refused at once", "refused later", "wrong", "wrong fingerprint", "wrong copy", "nan"],
)
def test_kernels_that_fail_or_measure_wrong_are_given_up_and_nothing_is_lost(
    tmp_path: Path, kernels: Any, said: str
) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard)
    made = kernels()
    queue = DeviceQueue(monitor, kernels=lambda _device: made)
    shown_to(queue, monitor)
    assert rows_written(queue, monitor, tmp_path) == pytest.approx(EXPECTED)
    about = [text for text in heard if "torch's operators" in text]
    assert len(about) == bool(said)
    assert all(f"torch's operators measure tensors on cpu, not trainmon's kernels: {said}" in one for one in about)


def test_a_device_without_kernels_is_told_once(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard)

    def none(_device: torch.device) -> Any:
        raise NoKernelsError("they require CUDA")

    queue = DeviceQueue(monitor, kernels=none)
    shown_to(queue, monitor)
    queue.launch()
    assert rows_written(queue, monitor, tmp_path) == pytest.approx(EXPECTED)
    assert [text for text in heard if "kernels" in text] == [
        "torch's operators measure tensors on cpu, not trainmon's kernels: they require CUDA"
    ]


def test_a_device_of_another_sort_has_none_and_neither_has_a_machine_without_a_driver() -> None:
    with pytest.raises(NoKernelsError, match="they require CUDA"):
        kernels_of(torch.device("xpu", 0))
    if not torch.cuda.is_available():
        with pytest.raises(NoKernelsError, match=r"libcuda.so.1|cu[A-Z]\w+ failed"):
            kernels_of(torch.device("cuda", 0))


@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_switch_leaves_all_to_the_operators(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv("TRAINMON_DEVICE_KERNELS", switch)
    with pytest.raises(NoKernelsError) as raised:
        kernels_of(torch.device("xpu", 0))
    assert ("TRAINMON_DEVICE_KERNELS" in str(raised.value)) == (switch == "0")


def test_tensors_launched_together_add_up_to_the_norm_of_those_that_count(tmp_path: Path) -> None:
    monitor = start(tmp_path, [], wg_distribution=True)
    queue = DeviceQueue(monitor, kernels=lambda _device: InterpretedKernels())
    ids = [monitor.register(name, 0) for name in "abcd"]
    overlapping = torch.as_strided(torch.full((9,), 2.0), (2, 2), (1, 1))
    tensors = [torch.ones(3), torch.full((4,), 5.0), overlapping, torch.full((2,), 4.0)]
    norm = StepNorm()
    queue.enqueue_all([((one, Kind.GRAD_REDUCED, 0), it) for one, it in zip(ids, tensors, strict=True)], 0.5, norm, [1])
    found = rows_written(queue, monitor, tmp_path, "grad_reduced")
    assert found == pytest.approx({"a": math.sqrt(3) / 2, "b": 5.0, "c": 2.0, "d": math.sqrt(32) / 2})
    assert norm.is_whole
    assert norm.squares == pytest.approx(3 / 4 + 4 + 8)


def test_rows_launched_together_are_taken_back_one_by_one(tmp_path: Path) -> None:
    monitor = start(tmp_path, [])
    queue = DeviceQueue(monitor, kernels=lambda _device: InterpretedKernels())
    ids = shown_to(queue, monitor)
    queue.launch()
    queue.retract(Kind.PARAM_ORIGIN, [ids["b"]], keep_last=False)
    queue.retract(Kind.PARAM_UPDATED, [ids["a"]], keep_last=False)
    assert rows_written(queue, monitor, tmp_path) == pytest.approx({"a": EXPECTED["a"], "c": EXPECTED["c"]})


def test_a_skipped_step_counts_what_was_launched_together(tmp_path: Path) -> None:
    monitor = start(tmp_path, [])
    queue = DeviceQueue(monitor, kernels=lambda _device: InterpretedKernels())
    shown_to(queue, monitor)
    queue.launch()
    queue.abandon_step()
    shown_to(queue, monitor)
    queue.abandon_step()
    assert rows_written(queue, monitor, tmp_path) == {}
    assert monitor.counts()["observed"] == 6
    assert monitor.counts()["not_sampled"] == 6


@pytest.mark.parametrize("how", READABLE.values(), ids=READABLE)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_torchs_interface_for_exchange_tells_what_its_attributes_tell(
    tmp_path: Path, how: Any, requires_grad: bool
) -> None:
    base = torch.randn(6, 8, generator=torch.Generator().manual_seed(3), requires_grad=requires_grad)
    with torch.no_grad():
        tensors = [how(base), how(base.double()), how(base.bfloat16()), torch.nn.Parameter(how(base))]
    monitor = start(tmp_path, [])
    shown = [((monitor.register(f"{place}", 0), Kind.PARAM_ORIGIN, 0), one) for place, one in enumerate(tensors)]
    tables = DeviceTables()
    first, *_ = tables.of_all(monitor, torch.device("cpu"), shown, set())
    again, block, left_out = tables.of_all(monitor, torch.device("cpu"), shown, set())
    assert first.is_new and not again.is_new and not left_out and len(block) == 4
    others = DeviceTables()
    table, _ = others.of([(one, None, 0, EPS, True) for one in tensors])
    assert words_of(tables, again) == words_of(others, table)
    monitor.shutdown()


def words_of(tables: DeviceTables, table: Any) -> list[int]:
    return [*memoryview(tables.words(table)).cast("q")][: 9 * table.rows]


def test_what_is_no_plain_tensor_of_the_device_is_left_out(tmp_path: Path) -> None:
    monitor = start(tmp_path, [])
    tensors = [torch.ones(2), torch.ones(2, device="meta"), torch.complex(torch.ones(2), torch.ones(2)).conj().imag]
    shown = [((monitor.register(f"{place}", 0), Kind.PARAM_ORIGIN, 0), one) for place, one in enumerate(tensors)]
    for _ in range(2):
        _, block, left_out = DeviceTables().of_all(monitor, torch.device("cpu"), shown, set())
        assert (len(block), left_out) == (1, [1, 2])
    monitor.shutdown()
