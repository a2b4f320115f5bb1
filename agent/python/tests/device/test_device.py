"""The way of tensors on a device, on the CPU's own memory: the numbers, their step, and nothing that waits.

What needs a real device is skipped by name where there is none.
"""

from __future__ import annotations

import contextlib
import gc
import math
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from support import runs, tiny
from support.configs import EVERYTHING
from support.interpreted import InterpretedKernels
from trainmon import Watch
from trainmon._trainmon import Monitor
from trainmon.common.kinds import Kind
from trainmon.device import DeviceQueue, pages, reductions, transfers
from trainmon.device.streams import DeviceStreams, Streams, streams_of
from trainmon.measurement import chunks
from trainmon.measurement.labels import UNSCALED, Label
from trainmon.watches import startup

OPS = ["min", "max", "mean", "norm", "std", "nans", "infs", "zeros"]
ALL: dict[str, Any] = {
    "ops": OPS,
    "eps": 1e-8,
    **EVERYTHING,
    "ndigits": 17,
}


@pytest.fixture(params=["operators", "kernels"], autouse=True)
def measured_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs both ways: with torch's operators, and with the kernels, interpreted."""
    way: str = request.param
    if way == "kernels":
        kernels = InterpretedKernels()
        monkeypatch.setattr(DeviceQueue.__init__, "__defaults__", (streams_of, lambda _device: kernels))
    return way


#: What is only true of torch's operators.
of_operators = pytest.mark.parametrize("measured_by", ["operators"], indirect=True)


def start(tmp_path: Path, heard: list[str] | None = None, **config: Any) -> Monitor:
    chosen = {**ALL, "targets": {}, "format": "csv", **config}
    said: list[str] = [] if heard is None else heard
    return startup.start_monitor(
        chosen, output_dir=str(tmp_path), rank=0, listener=lambda severity, message, hint: said.append(message)
    )


class SlowStreams(Streams):
    """A device that delivers when `is_done` says so."""

    def __init__(self) -> None:
        self.is_done = False
        self.fails = False
        self.is_capturing = False

    def copy(self, host: torch.Tensor, device: torch.Tensor, marks: list[Any]) -> Any:
        assert not self.is_capturing, "a copy would become part of the graph"
        host.copy_(device)
        return self

    def refusal(self) -> str | None:
        return "a graph is being captured" if self.is_capturing else None

    def query(self) -> bool:
        assert not self.is_capturing, "CUDA ends a capture in which an event is asked"
        if self.fails:
            raise RuntimeError("an illegal memory access was encountered\nmore advice")
        return self.is_done


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def those_there_are(names: str) -> list[torch.dtype]:
    """An older torch lacks some."""
    return [getattr(torch, name) for name in names.split() if hasattr(torch, name)]


EIGHT = those_there_are("float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz")
WHOLE = those_there_are("int8 int16 int32 int64 uint8 uint16 uint32 uint64")


def samples() -> Iterator[tuple[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(3)
    base = torch.randn(37, 29, generator=random)
    base[0, 0] = 0.0
    for dtype in FLOATS + EIGHT:
        yield f"{dtype}", base.to(dtype)
    for dtype in WHOLE:
        yield f"{dtype}", torch.randint(0, 100, (23, 7), generator=random).to(dtype)
    yield "bool", base > 0
    for dtype in (torch.complex64, torch.complex128):
        yield f"{dtype}", torch.complex(base, base.flip(0)).to(dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for name, bad in (("nan", [math.nan]), ("inf", [math.inf]), ("infs", [math.inf, -math.inf])):
            spoilt = base.clone()
            spoilt.view(-1)[5 : 5 + len(bad)] = torch.tensor(bad)
            yield f"{dtype} {name}", spoilt.to(dtype)
        yield f"{dtype} empty", torch.empty(3, 0, dtype=dtype)
        yield f"{dtype} single", torch.tensor(-2.5, dtype=dtype)
        yield f"{dtype} one", torch.tensor([[7.0]], dtype=dtype)
        yield f"{dtype} transposed", base.to(dtype).t()
        yield f"{dtype} strided", base.to(dtype)[::3, 1::2]
        yield f"{dtype} expanded", base[:, :1].to(dtype).expand(37, 11)
        yield f"{dtype} constant", torch.full((1000,), 3.0, dtype=dtype)
        yield f"{dtype} tiny", torch.tensor([1e-9, -1e-8, 1e-8, 2e-8, 0.0]).to(dtype)
    yield "channels last", torch.randn(2, 3, 5, 7, generator=random).to(memory_format=torch.channels_last)
    yield "large", torch.randn(70000, generator=random) + 1000.0


def by_both_ways(tmp_path: Path, tensors: list[tuple[str, torch.Tensor]], factor: Any = UNSCALED) -> list[Any]:
    """Rows of the host's way and of the device's: of all together, and of one after the other."""
    found = []
    for way in ("host", "device", "one by one"):
        monitor = start(tmp_path / way)
        queue = DeviceQueue(monitor)
        for name, tensor in tensors:
            identity = monitor.register(name, 0)
            if way == "host":
                monitor.observe(identity, Kind.PARAM_ORIGIN, 0, tensor, float(factor))
            else:
                queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), tensor, factor, None)
            if way == "one by one":
                queue.launch()
        queue.launch()
        monitor.end_step()
        queue.collect()
        monitor.shutdown()
        directory = runs.run_directory(tmp_path / way, 0)
        found.append(runs.by_name(runs.rows(directory, "param_origin"), 0))
    return found


def assert_equal_rows(host: dict[str, Any], device: dict[str, Any], relative: float = 1e-6) -> None:
    assert list(host) == list(device)
    for name, expected in host.items():
        for column, value in expected.items():
            found = device[name][column]
            try:
                wanted, got = float(value), float(found)
            except ValueError:
                assert found == value, f"{name}: {column}"
                continue
            same = math.isnan(got) if math.isnan(wanted) else math.isclose(got, wanted, rel_tol=relative, abs_tol=1e-12)
            assert same, f"{name}: {column} is {found} on the device, {value} on the host"


def test_statistics_equal_the_hosts_for_every_dtype_and_layout(tmp_path: Path) -> None:
    host, device, one_by_one = by_both_ways(tmp_path, list(samples()))
    assert len(host) == len(list(samples()))
    assert_equal_rows(host, device)
    assert_equal_rows(host, one_by_one)


@pytest.mark.parametrize("names", [("float32", "float32"), ("float32 nan", "float32 empty", "bfloat16", "int64")])
def test_what_several_tensors_hold_together_is_one_record(tmp_path: Path, names: tuple[str, ...]) -> None:
    some = dict(samples())
    tensors = [some.get(name, some.get(f"torch.{name}")) for name in names]
    shown = [tensor for tensor in tensors if tensor is not None]
    assert len(shown) == len(names)
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    queue.enqueue_together(Label(monitor.register("all", 0), Kind.PARAM_ORIGIN), shown)
    queue.launch()
    monitor.end_step()
    queue.collect()
    monitor.shutdown()
    (row,) = runs.rows(runs.run_directory(tmp_path, 0), "param_origin")
    every = torch.cat([one.double().reshape(-1) for one in shown])
    numbers = every[~every.isnan()] if every.isnan().any() else every
    assert int(float(row["nans"])) == every.numel() - numbers.numel()
    expected = {"min": every.min(), "max": every.max(), "mean": every.mean(), "norm": every.norm(), "std": every.std()}
    for column, value in expected.items():
        assert float(row[column]) == pytest.approx(float(value), rel=1e-6, nan_ok=True), column


@of_operators
def test_statistics_of_tensors_cut_into_pieces_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions.parts_of, "__defaults__", (100,))
    monkeypatch.setattr("trainmon.device.targets.SMALL", 0)
    host, device, *_ = by_both_ways(tmp_path, list(samples()))
    assert_equal_rows(host, device)


@of_operators
def test_pieces_are_bounded_and_hold_every_element_once() -> None:
    numbers = torch.arange(2 * 30 * 7 * 5, dtype=torch.float32)
    shapes = {
        "plain": numbers.view(2, 30, 7, 5),
        "permuted": numbers.view(2, 30, 7, 5).permute(3, 1, 0, 2),
        "strided": torch.arange(4 * 30 * 14 * 5, dtype=torch.float32).view(4, 30, 14, 5)[::2, :, ::2],
    }
    for name, tensor in shapes.items():
        cut = [piece for (piece,) in chunks.pieces([tensor], 64)]
        assert max(piece.numel() for piece in cut) <= 64, name
        assert torch.cat([piece.reshape(-1) for piece in cut]).sort().values.equal(tensor.reshape(-1).sort().values)
        memory = tensor.untyped_storage().data_ptr()
        assert all(piece.untyped_storage().data_ptr() == memory for piece in cut), f"{name}: copied"


@of_operators
def test_several_tensors_are_cut_alike_even_where_their_layouts_differ() -> None:
    left = torch.arange(600.0).view(20, 30)
    right = left.t().contiguous().t()
    for one, other in chunks.pieces([left, right], 50):
        assert one.equal(other)


@pytest.mark.parametrize("factor", [2.0**-7, torch.tensor(2.0**-7)], ids=["number", "tensor"])
def test_a_factor_scales_the_reading(tmp_path: Path, factor: Any) -> None:
    tensors = [(name, tensor) for name, tensor in samples() if tensor.dtype in FLOATS]
    host, device, *_ = by_both_ways(tmp_path, tensors, factor)
    assert_equal_rows(host, device)


def test_a_norm_is_given_to_whoever_waits_for_it(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue, norms = DeviceQueue(monitor), []
    tensor = torch.tensor([3.0, 4.0])
    queue.enqueue(Label(monitor.register("a", 0), Kind.GRAD_REDUCED), tensor, 0.5, norms.append)
    queue.enqueue(Label(monitor.register("b", 0), Kind.GRAD_REDUCED), tensor.to_sparse(), 1.0, norms.append)
    queue.launch()
    assert len(norms) == 1
    assert math.isnan(norms[0]), "the sparse one never comes"
    monitor.end_step()
    queue.collect()
    assert norms[1] == 2.5
    monitor.shutdown()


# When readings arrive.


def test_late_readings_reach_the_step_they_belong_to(tmp_path: Path) -> None:
    monitor, slow = start(tmp_path), SlowStreams()
    queue = DeviceQueue(monitor, lambda device: slow)
    identity = monitor.register("w", 0)
    for step in range(6):
        slow.is_done = step in (3, 5)
        queue.collect()
        queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), torch.full((4,), float(step)), UNSCALED, None)
        queue.close_step()
        monitor.end_step()
    slow.is_done = True
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "param_origin")
    assert {int(row["step"]): float(row["max"]) for row in found} == {step: float(step) for step in range(6)}


def test_a_device_too_far_behind_is_given_up_counted_and_said(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor, slow = start(tmp_path, heard), SlowStreams()
    queue, norms = DeviceQueue(monitor, lambda device: slow), []
    identity = monitor.register("w", 0)
    for _ in range(7):
        queue.collect()
        queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), torch.ones(4), UNSCALED, norms.append)
        queue.close_step()
        monitor.end_step()
    assert len(norms) == 2
    slow.is_done = True
    queue.finish(1.0)
    monitor.shutdown()
    counts = monitor.counts()
    assert counts["observed"] == 7
    # Two are given up here; the batch of the third had left without it when it came.
    assert counts["not_sampled"] == 3
    assert any("did not deliver" in message for message in heard), heard
    found = runs.rows(runs.run_directory(tmp_path, 0), "param_origin")
    assert [int(row["step"]) for row in found] == [3, 4, 5, 6]


def test_a_graph_that_is_captured_is_left_alone_and_earlier_results_come_after_it(tmp_path: Path) -> None:
    monitor, slow = start(tmp_path), SlowStreams()
    queue = DeviceQueue(monitor, lambda device: slow)
    identity = monitor.register("w", 0)
    for step in range(4):
        # The capture begins behind what was launched in step 1, and lasts for the whole of step 2.
        slow.is_capturing, slow.is_done = step == 2, step == 3
        queue.collect()
        queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), torch.full((4,), float(step)), UNSCALED, None)
        queue.launch()
        slow.is_capturing = step in (1, 2)
        queue.close_step()
        monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "param_origin")
    assert {int(row["step"]): float(row["max"]) for row in found} == {0: 0.0, 1: 1.0, 3: 3.0}
    assert monitor.counts()["not_sampled"] == 1


def test_a_device_that_fails_is_told_and_does_not_raise(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor, slow = start(tmp_path, heard), SlowStreams()
    queue = DeviceQueue(monitor, lambda device: slow)
    queue.enqueue(Label(monitor.register("w", 0), Kind.PARAM_ORIGIN), torch.ones(4), UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    slow.fails = True
    queue.collect()
    assert any("illegal memory access" in message and "advice" not in message for message in heard), heard
    monitor.shutdown()
    assert monitor.counts()["not_sampled"] == 1


def test_a_skipped_step_leaves_nothing_behind(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    identity = monitor.register("w", 0)
    for value in (1.0, 2.0):
        queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), torch.full((4,), value), UNSCALED, None)
        queue.launch()
        queue.enqueue(Label(identity, Kind.EXP_AVG), torch.full((4,), value), UNSCALED, None)
        if value == 1.0:
            queue.abandon_step()
            monitor.skip_step()
    queue.close_step()
    monitor.end_step()
    queue.collect()
    monitor.shutdown()
    directory = runs.run_directory(tmp_path, 0)
    for kind in ("param_origin", "exp_avg"):
        assert [(row["step"], float(row["max"])) for row in runs.rows(directory, kind)] == [("0", 2.0)]
    counts = monitor.counts()
    assert (counts["observed"], counts["not_sampled"]) == (4, 2)


def test_more_rows_than_a_page_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The interpreted kernels take a twentieth of a second for each tensor.
    rows = 64
    monkeypatch.setattr(transfers, "ROWS", rows)
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    count = 2 * rows + 20
    for number in range(count):
        label = Label(monitor.register(f"w{number}", 0), Kind.PARAM_ORIGIN)
        queue.enqueue(label, torch.full((3,), float(number)), UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    queue.collect()
    monitor.shutdown()
    found = runs.by_name(runs.rows(runs.run_directory(tmp_path, 0), "param_origin"), 0)
    assert len(found) == count
    assert all(float(row["max"]) == float(name[1:]) for name, row in found.items())


def test_a_lane_nobody_finished_delivers_when_it_goes(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    queue.enqueue(Label(monitor.register("w", 0), Kind.PARAM_ORIGIN), torch.ones(4), UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    del queue
    monitor.shutdown()
    assert len(runs.rows(runs.run_directory(tmp_path, 0), "param_origin")) == 1


@of_operators
def test_a_tensor_shown_again_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    first, second, third = (monitor.register(name, 0) for name in ("first", "second", "third"))
    measured = []
    original = reductions.Batch.measure

    def measure(self: Any, tensors: Any) -> Any:
        measured.append(len(tensors))
        return original(self, tensors)

    monkeypatch.setattr(reductions.Batch, "measure", measure)
    for step in range(2):
        queue.collect()
        assert not queue.repeat(Label(second, Kind.ACTV), first), "nothing was shown in this step yet"
        queue.enqueue(Label(first, Kind.ACTV, 1), torch.full((5,), float(step)), UNSCALED, None)
        assert queue.repeat(Label(second, Kind.ACTV, 2), first)
        queue.launch()
        assert queue.repeat(Label(third, Kind.ACTV, 3), first)
        assert not queue.repeat(Label(third, Kind.ACTV_GRAD, 3), first)
        queue.close_step()
        monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "actv")
    assert [(row["name"], row["micro_step"], float(row["max"])) for row in found] == [
        (name, str(micro), step) for step in (0.0, 1.0) for micro, name in enumerate(("first", "second", "third"), 1)
    ]
    assert measured == [1, 1]


def test_the_copy_to_the_host_follows_every_stream_that_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that a device's module gets, in their order; what they do is tested where there is a device."""
    calls: list[str] = []

    class Mark:
        def record(self, stream: Any) -> None:
            calls.append(f"event on {stream.name}")

    class Queue:
        def __init__(self, device: Any, name: str = "side") -> None:
            self.name = name

        def wait_event(self, event: Any) -> None:
            calls.append(f"{self.name} waits")

    class Module:
        Event, Stream = Mark, Queue
        now = Queue(None, "first")

        @classmethod
        def current_stream(cls, device: Any) -> Any:
            return cls.now

        @staticmethod
        @contextlib.contextmanager
        def stream(stream: Any) -> Iterator[None]:
            calls.append(f"in {stream.name}")
            yield

    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: calls.append(f"kept for {stream.name}"))
    monkeypatch.setattr(DeviceStreams, "host_table", Streams.host_table)
    page = pages.Page(torch.device("cpu"), DeviceStreams(Module, torch.device("cpu")))
    entry = pages.Numbers(lambda hold, values: None, None, 0)
    page.free(1).fill_(1.0)
    page.take([entry])
    Module.now = Queue(None, "second")
    page.free(1).fill_(2.0)
    page.take([entry])
    assert calls == ["kept for first", "event on first", "kept for second", "event on second"]
    calls.clear()
    page.flush()
    assert calls == ["side waits", "side waits", "in side", "kept for side", "event on side"]
    assert page.arrived[:, 0].equal(torch.tensor([1.0, 2.0], dtype=torch.float64))


# What cannot be measured.


def test_what_cannot_be_measured_is_counted_and_said(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard)
    queue = DeviceQueue(monitor)
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    odd_type = getattr(torch, "float8_e8m0fnu", torch.complex32)
    odd = [torch.eye(3).to_sparse(), torch.ones(3, device="meta"), freed, torch.ones(3).to(odd_type)]
    for number, tensor in enumerate(odd):
        queue.enqueue(Label(monitor.register(f"w{number}", 0), Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    assert monitor.counts()["not_sampled"] == len(odd)
    for word in ("strided", "meta", "freed", str(odd_type)):
        assert any(word in message for message in heard), (word, heard)


@of_operators
def test_a_batch_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard)
    queue = DeviceQueue(monitor)
    original = torch.aminmax

    def out_of_memory(values: torch.Tensor) -> Any:
        if values.numel() == 20000:
            raise getattr(torch, "OutOfMemoryError", RuntimeError)("device out of memory. Tried to allocate")
        return original(values)

    monkeypatch.setattr(torch, "aminmax", out_of_memory)
    for name, kind, size, factor in (("a", Kind.PARAM_ORIGIN, 20000, UNSCALED), ("b", Kind.EXP_AVG, 20001, 2.0)):
        queue.enqueue(Label(monitor.register(name, 0), kind), torch.ones(size), factor, None)
    queue.enqueue(Label(monitor.register("c", 0), Kind.PARAM_ORIGIN), torch.ones(5), UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    directory = runs.run_directory(tmp_path, 0)
    assert [row["name"] for kind in ("param_origin", "exp_avg") for row in runs.rows(directory, kind)] == ["c", "b"]
    assert any("out of memory" in message for message in heard)


def test_a_gradient_written_before_the_pass_ended_is_not_shown_as_what_it_was_not(tmp_path: Path) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard)
    queue = DeviceQueue(monitor)
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    names = [monitor.register(f"w{number}", 0) for number in range(2)]
    for number, weight in enumerate(weights):

        def arrived(leaf: torch.Tensor, number: int = number) -> None:
            queue.enqueue(Label(names[number], Kind.GRAD_UNREDUCED), leaf.grad, UNSCALED, None, once=True)
            if number == 0:
                leaf.grad.mul_(2.0)

        weight.register_post_accumulate_grad_hook(arrived)
    sum((weight * 3.0).sum() for weight in weights).backward()
    queue.close_step()
    monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced")
    assert [(row["name"], float(row["max"])) for row in found] == [("w1", 3.0)]
    assert any("overwritten" in message for message in heard), heard


def test_a_backward_pass_that_fails_keeps_no_gradient(tmp_path: Path) -> None:
    heard: list[str] = []
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    monitor = start(tmp_path, heard, xy_distribution=False)
    fails = True

    def fail(_gradient: torch.Tensor) -> None:
        if fails:
            raise RuntimeError("out of memory")

    with Watch(net, optimizer, monitor, device_only=True):
        hidden = net[0](torch.ones(2, 3))
        hidden.register_hook(fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            net[1](hidden).sum().backward()
        assert net[1].weight.grad is not None
        gone = weakref.ref(net[1].weight.grad)
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        assert gone() is None, "the failed attempt's gradient is held"
        assert any("its backward pass failed" in one for one in heard)
        fails = False
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def test_a_gradient_that_may_be_aggregated_in_place_is_read_at_once(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    weight = torch.nn.Parameter(torch.ones(3))
    identity = monitor.register("w", 0)

    def arrived(leaf: torch.Tensor) -> None:
        queue.enqueue(Label(identity, Kind.GRAD_UNREDUCED), leaf.grad, UNSCALED, None)
        leaf.grad.data.mul_(100.0)

    weight.register_post_accumulate_grad_hook(arrived)
    (weight * 3.0).sum().backward()
    queue.close_step()
    monitor.end_step()
    queue.finish(1.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "grad_unreduced")
    assert [float(row["max"]) for row in found] == [3.0]


# Agreement, updates, numbers.


def test_agreement_and_updates_equal_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions.parts_of_change, "__defaults__", (64,))
    monkeypatch.setattr(reductions.agreement, "__defaults__", (64,))
    random = torch.Generator().manual_seed(5)
    pairs = {}
    for dtype in FLOATS:
        before = torch.randn(16, 24, generator=random).to(dtype)
        pairs[f"{dtype}"] = (before, before + 0.01 * torch.randn(16, 24, generator=random).to(dtype))
        pairs[f"{dtype} layouts"] = (before, pairs[f"{dtype}"][1].t().contiguous().t())
    pairs["zeros and nan"] = (torch.tensor([0.0, 1.0, math.nan, -1.0]), torch.tensor([1.0, 1.0, 1.0, 1.0]))
    found = []
    for way in ("host", "device"):
        monitor = start(tmp_path / way)
        queue = DeviceQueue(monitor)
        for name, (before, after) in pairs.items():
            untouched = before.clone(), after.clone()
            label = Label(monitor.register(name, 0), Kind.MG_DIRECTION)
            weight = before.clone()
            if way == "host":
                agreed = monitor.sign_agreement(before, after)
                assert agreed is not None
                monitor.record_values(label.tensor_id, label.kind, 0, (agreed,))
                monitor.keep_copy(label.tensor_id, weight)
                monitor.observe_update(label.tensor_id, after)
            else:
                queue.enqueue_agreement(label, before, after)
                queue.keep_copy(label.tensor_id, weight)
                # As before an optimizer's step.
                queue.launch()
                weight.zero_()
                queue.enqueue_update(label.tensor_id, after)
            assert torch.equal(before.nan_to_num(9), untouched[0].nan_to_num(9))
            assert torch.equal(after, untouched[1])
        queue.close_step()
        monitor.end_step()
        queue.finish(1.0)
        monitor.shutdown()
        directory = runs.run_directory(tmp_path / way, 0)
        found.append([runs.by_name(runs.rows(directory, kind), 0) for kind in ("other", "update", "update_ratio")])
    for host, device in zip(*found, strict=True):
        assert len(host) == len(pairs)
        assert_equal_rows(host, device)


def test_a_number_arrives_as_it_was_when_it_was_given(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue, arrived = DeviceQueue(monitor), []
    loss = torch.tensor(1.5)
    queue.enqueue_scalar(loss, arrived.append)
    loss.mul_(100)
    queue.close_step()
    monitor.end_step()
    assert arrived == []
    queue.collect()
    assert arrived == [1.5]
    monitor.shutdown()


# Costs and manners.


class Launches(TorchDispatchMode):
    """Counts operators; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        if not func.is_view and name not in ("aten::empty", "aten::empty_like", "aten::detach"):
            self.count += 1
        return func(*args, **(kwargs or {}))


def launches(monitor: Monitor, tensors: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many operators measuring them takes."""
    queue = DeviceQueue(monitor)
    for number, tensor in enumerate(tensors):
        queue.enqueue(Label(monitor.register(f"w{number}", 0), Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
    # Private: nothing else lets a mode see what we launch, which a training's own must not.
    monkeypatch.setattr("trainmon.measurement.unobserved._no_dispatch_modes", contextlib.nullcontext)
    with Launches() as counter:
        queue.launch()
    return counter.count


@of_operators
def test_small_tensors_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = start(tmp_path, ops=["norm", "mean", "min", "max", "nans", "zeros"])
    assert launches(monitor, [torch.ones(100) for _ in range(200)], monkeypatch) <= 30
    large = [torch.ones(40000) for _ in range(10)]
    assert launches(monitor, large, monkeypatch) <= 10 * 12 + 6
    monitor.shutdown()


@of_operators
def test_only_what_is_asked_for_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for ops in (["norm"], ["norm", "nans"], OPS):
        monitor = start(tmp_path / "-".join(ops), ops=ops)
        counts.append(launches(monitor, [torch.ones(40000)], monkeypatch))
        monitor.shutdown()
    assert counts == sorted(set(counts)), counts
    assert counts[0] <= 7, counts


@pytest.mark.parametrize("op", ["absmax", "id", "count", "shape"])
def test_a_statistic_made_of_others_needs_not_be_asked_for_with_them(tmp_path: Path, op: str) -> None:
    found = []
    for way in ("host", "device"):
        monitor = start(tmp_path / way, ops=[op])
        identity, tensor = monitor.register("w", 0), torch.tensor(-3.5)
        if way == "host":
            monitor.observe(identity, Kind.PARAM_ORIGIN, 0, tensor)
        else:
            queue = DeviceQueue(monitor)
            queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
            queue.close_step()
        monitor.end_step()
        if way == "device":
            queue.collect()
        monitor.shutdown()
        found.append(runs.rows(runs.run_directory(tmp_path / way, 0), "param_origin"))
    assert found[0] == found[1]


def test_no_mode_of_the_host_sees_our_operators(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    queue.enqueue(Label(monitor.register("w", 0), Kind.PARAM_ORIGIN), torch.ones(40000), UNSCALED, None)
    with Launches() as counter, torch.autocast("cpu", dtype=torch.bfloat16):
        queue.launch()
    assert counter.count == 0
    monitor.shutdown()


WAITING = (
    *("item", "cpu", "tolist", "numpy", "__float__", "__bool__", "__int__", "__index__", "__array__", "__complex__"),
    *("nonzero", "__contains__"),
)


@contextlib.contextmanager
def nothing_waits(monkeypatch: pytest.MonkeyPatch, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Whatever would make the host wait for a device raises. `but`: a number on the host may be read as one."""
    with monkeypatch.context() as patched:
        for name in set(WAITING) - set(but):

            def waits(*args: Any, name: str = name, **kwargs: Any) -> Any:
                raise AssertionError(f"`Tensor.{name}` waits for the device")

            patched.setattr(torch.Tensor, name, waits, raising=False)
        yield


@pytest.mark.parametrize("device_only", [False, True], ids=["host", "device"])
def test_nothing_in_a_step_waits_for_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device_only: bool
) -> None:
    heard: list[str] = []
    monitor = start(tmp_path, heard, recording_l2_features=True, l2_targets={"linear_hook": []}, monitor_mbs_grad=True)
    net = tiny.model(layers=1)
    # Torch's own AdamW reads its step count on the host; SGD reads nothing.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with Watch(net, optimizer, monitor, grad_acc_steps=2, device_only=device_only):
        for step in range(3):
            with nothing_waits(monkeypatch, but=() if device_only else ("__float__",)):
                optimizer.zero_grad()
                for micro in range(2):
                    tiny.loss_of(net, step, 0, micro, 2).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
    begins, ends = heard
    assert begins.startswith("measures ") and ends.startswith("ended before step "), heard
    directory = runs.run_directory(tmp_path, 0)
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced", "param_origin", "update", "linear_hook"):
        assert {int(row["step"]) for row in runs.rows(directory, kind)} == {0, 1, 2}, kind


def test_a_watch_shows_the_same_on_either_way(tmp_path: Path) -> None:
    found, trained = [], []
    for way in (False, True):
        monitor = start(tmp_path / str(way))
        net, optimizer = tiny.training(layers=1)
        with Watch(net, optimizer, monitor, device_only=way):
            for step in range(3):
                optimizer.zero_grad()
                tiny.loss_of(net, step, 0).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
        trained.append(torch.cat([one.detach().reshape(-1) for one in net.parameters()]))
        directory = runs.run_directory(tmp_path / str(way), 0)
        kinds = ("actv", "actv_grad", "grad_unreduced", "grad_reduced")
        found.append({kind: runs.rows(directory, kind) for kind in kinds})
        found[-1]["steps"] = runs.steps(directory)
        assert monitor.counts()["not_sampled"] == 0
    assert torch.equal(*trained)
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced"):
        host, device = ({f"{r['step']} {r['name']}": r for r in rows[kind]} for rows in found)
        assert_equal_rows(dict(sorted(host.items())), dict(sorted(device.items())), relative=1e-5)
    for host, device in zip(found[0]["steps"], found[1]["steps"], strict=True):
        assert math.isclose(float(host["grad_norm"]), float(device["grad_norm"]), rel_tol=1e-6)


# A real device.

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@needs_gpu
def test_gpu_statistics_equal_the_hosts(tmp_path: Path) -> None:
    host, _ = by_both_ways(tmp_path / "one", list(samples()))
    on_gpu = [(name, tensor.cuda()) for name, tensor in samples()]
    monitor = start(tmp_path / "two")
    queue = DeviceQueue(monitor)
    for name, tensor in on_gpu:
        queue.enqueue(Label(monitor.register(name, 0), Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
    queue.close_step()
    monitor.end_step()
    queue.finish(10.0)
    monitor.shutdown()
    found = runs.by_name(runs.rows(runs.run_directory(tmp_path / "two", 0), "param_origin"), 0)
    assert_equal_rows({name: host[name] for name in sorted(host)}, {name: found[name] for name in sorted(found)})


@needs_gpu
def test_gpu_training_is_never_waited_for(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.randn(32, 64, device="cuda")
    try:
        with Watch(net, optimizer, monitor):
            for _ in range(4):
                torch.cuda.set_sync_debug_mode("error")
                optimizer.zero_grad()
                net(inputs).square().mean().backward()
                optimizer.step()
                torch.cuda.set_sync_debug_mode("default")
                torch.cuda.synchronize()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert monitor.counts()["not_sampled"] == 0
    directory = runs.run_directory(tmp_path, 0)
    for kind in ("actv", "actv_grad", "grad_unreduced", "grad_reduced", "param_origin", "update"):
        assert {int(row["step"]) for row in runs.rows(directory, kind)} == {0, 1, 2, 3}, kind


@needs_gpu
def test_gpu_gradients_overwritten_right_after_the_launch_are_shown_as_they_were(tmp_path: Path) -> None:
    monitor = start(tmp_path)
    queue = DeviceQueue(monitor)
    identity = monitor.register("w", 0)
    for step in range(4):
        queue.collect()
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor = torch.full((1 << 24,), float(step), device="cuda")
            queue.enqueue(Label(identity, Kind.PARAM_ORIGIN), tensor, UNSCALED, None)
            queue.launch()
            tensor.fill_(1e9)
            del tensor
            queue.close_step()
        monitor.end_step()
    queue.finish(10.0)
    monitor.shutdown()
    found = runs.rows(runs.run_directory(tmp_path, 0), "param_origin")
    assert [(float(row["min"]), float(row["max"])) for row in found] == [(float(s), float(s)) for s in range(4)]
