"""The extension module against torch's own answers."""

from __future__ import annotations

import gc
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainmon._trainmon import DEVICE_COLUMNS, KINDS, ConfigError, Monitor, ParsedConfig, squash_name

GRAD = KINDS.index("grad_reduced")
GRAD_EARLY = KINDS.index("grad_unreduced")
PARAM = KINDS.index("param_origin")
PARAM_LATER = KINDS.index("param_updated")
ACTV = KINDS.index("actv")
UPDATE = KINDS.index("update")
RATIO = KINDS.index("update_ratio")
OPS = ["min", "max", "mean", "norm", "absmax", "std", "nans", "infs", "zeros", "count"]
EPS = 1e-8

Open = Callable[..., Monitor]


@pytest.fixture
def said() -> list[tuple[str, str, str | None]]:
    return []


@pytest.fixture
def open_monitor(tmp_path: Path, said: list[tuple[str, str, str | None]]) -> Iterator[Open]:
    """Opens monitors and checks at the end that none lost count of a record."""
    opened: list[Monitor] = []

    def opening(**changes: Any) -> Monitor:
        config = {
            "targets": {}, "format": "csv", "ops": OPS, "eps": EPS, "all_xy": True, "xy_distribution": True,
            "wg_distribution": True, "param_distribution": True, "update": True, **changes,
        }  # fmt: skip
        config = {key: value for key, value in config.items() if value is not None}
        monitor = Monitor.start(
            ParsedConfig(json.dumps(config)),
            rank=0,
            output_dir=str(tmp_path / f"out{len(opened)}"),
            listener=lambda *it: said.append(it),
        )
        opened.append(monitor)
        return monitor

    yield opening
    for monitor in opened:
        monitor.shutdown()
        counts = monitor.counts()
        assert counts["observed"] == counts["not_sampled"] + counts["offered"]
        assert counts["offered"] == counts["accepted"] + counts["dropped"]
        assert counts["lost"] == 0


def reading(monitor: Monitor, tensor: torch.Tensor, kind: int = GRAD, **arguments: Any) -> dict[str, float]:
    """Observes a tensor and gives what was recorded of it."""
    monitor.observe(monitor.register("it", 0), kind, 0, tensor, **arguments)
    return monitor.latest(kind)[-1][3]


def answers(tensor: torch.Tensor) -> dict[str, float]:
    """The same from torch, in float64."""
    values = tensor.detach()
    values = (values.abs() if values.is_complex() else values).to(torch.float64).flatten()
    empty = values.numel() == 0
    finite = torch.isfinite(values)
    return {
        "min": math.nan if empty else values.min().item(),
        "max": math.nan if empty else values.max().item(),
        "mean": values.mean().item(),
        "norm": values.norm().item(),
        "absmax": math.nan if empty else values.abs().max().item(),
        "std": values.std().item() if values.numel() > 1 else math.nan,
        "nans": values.isnan().sum().item(),
        "infs": values.isinf().sum().item(),
        "zeros": math.nan if empty or tensor.dtype == torch.bool else (values.abs() < EPS).double().mean().item(),
        "count": values.numel(),
    } | ({} if finite.all() else {"std": math.nan})


def assert_equal(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    for op, value in expected.items():
        assert found[op] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), op


def those_there_are(names: str) -> list[torch.dtype]:
    """An older torch lacks some."""
    return [getattr(torch, name) for name in names.split() if hasattr(torch, name)]


FLOATS = those_there_are("float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz")
INTEGERS = those_there_are("int8 int16 int32 int64 uint8 uint16 uint32 uint64")


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128], ids=str)
def test_every_dtype_gives_what_torch_gives(open_monitor: Open, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(37, 53, generator=generator, dtype=torch.float64) * 3
    values[3, 4:9] = 0
    if dtype in INTEGERS:
        values = (values * 10).round()
        values = values if dtype.is_signed else values.abs()
    if dtype.is_complex:
        values = torch.complex(values, values.flip(0))
    tensor = (values > 0) if dtype == torch.bool else values.to(dtype)
    assert_equal(reading(open_monitor(), tensor), answers(tensor))


STRIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda it: it.t(),
    "permuted": lambda it: it.reshape(8, 5, 60).permute(2, 0, 1),
    "every third": lambda it: it[::3, 1::2],
    "offset": lambda it: it[5:7],
    "expanded": lambda it: it[:, :1].expand(40, 7),
    "channels last": lambda it: it.reshape(2, 4, 10, 30).contiguous(memory_format=torch.channels_last),
    "overlapping": lambda it: it.flatten().unfold(0, 9, 4),
    "no dimensions": lambda it: it[3, 3],
    "one element": lambda it: it[3:4, 3:4],
    "empty": lambda it: it[:0],
    "empty in the middle": lambda it: it.reshape(40, 0 + 60, 1)[:, 3:3],
    "eight dimensions": lambda it: it.reshape(2, 2, 2, 5, 2, 2, 3, 5),
}


@pytest.mark.parametrize("shape", STRIDES)
def test_every_layout_gives_what_torch_gives(open_monitor: Open, shape: str) -> None:
    whole = torch.randn(40, 60, generator=torch.Generator().manual_seed(2))
    tensor = STRIDES[shape](whole)
    assert_equal(reading(open_monitor(), tensor), answers(tensor))


def test_nan_and_infinity_are_counted(open_monitor: Open) -> None:
    tensor = torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0])
    found = reading(open_monitor(), tensor)
    assert (found["nans"], found["infs"]) == (1, 2)
    assert math.isnan(found["min"]) and math.isnan(found["norm"])


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """A thread gets the interpreter only when another gives it away of its own accord."""
    interval = sys.getswitchinterval()
    # What the collector frees may close files, and that gives the interpreter away.
    gc.collect()
    gc.disable()
    sys.setswitchinterval(10_000)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


class Eager:
    """Another thread that wants the interpreter all the time, and counts how often it got it."""

    def __init__(self) -> None:
        self.turns = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self.turns += 1
            time.sleep(0)

    def join(self) -> None:
        self._is_over = True
        self._thread.join()


@pytest.mark.usefixtures("no_forced_switches")
def test_small_tensors_keep_the_interpreter_and_large_ones_give_it_away(open_monitor: Open) -> None:
    monitor = open_monitor()
    identity, small, large = monitor.register("it", 0), torch.ones(16), torch.ones(1 << 20)

    def turns_during(tensor: torch.Tensor) -> int:
        other = Eager()
        before = other.turns
        for _ in range(1000):
            monitor.observe(identity, GRAD, 0, tensor)
            if other.turns > before and tensor is large:
                break
        turns = other.turns - before
        other.join()
        return turns

    assert turns_during(large) > 0
    # Now and then something else gives it away: a thread that began to wait before the switches were stopped, say.
    assert turns_during(small) < 50


def test_a_factor_stands_for_the_scaled_tensor(open_monitor: Open) -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 1e-6
    factor = 2.0**-7
    tensor[:100] = EPS / factor * 0.999
    tensor[100:200] = EPS / factor * 1.001
    assert_equal(reading(open_monitor(), tensor, factor=factor), answers(tensor * factor))


@pytest.mark.parametrize("factor", [0.0, math.inf, math.nan, -1.0])
def test_a_factor_that_no_scale_gives_is_told(open_monitor: Open, said: list[Any], factor: float) -> None:
    monitor = open_monitor()
    assert monitor.observe(monitor.register("it", 0), GRAD, 0, torch.ones(3), factor) is None
    assert monitor.counts()["not_sampled"] == 1
    assert "not a finite number above 0" in said[-1][1]


class Noisy(torch.Tensor):
    """A subclass that hears of every access."""

    heard: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(str(func))
        raise RuntimeError("do not touch")


class Wrapper(torch.Tensor):
    """A tensor without memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("the monitor ran an operator")


def freed() -> torch.Tensor:
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(0)
    return tensor


def cut_short() -> torch.Tensor:
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(3996)
    return tensor


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(1000)


UNSUPPORTED: dict[str, tuple[Callable[[], Any], str]] = {
    "freed storage": (freed, "freed or resized"),
    "storage cut short": (cut_short, "storage has 3996 of the required 4000 bytes"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "torch.sparse_coo"),
    "sparse rows": (lambda: torch.eye(3).to_sparse_csr(), "torch.sparse_csr"),
    "meta": (lambda: torch.ones(3, device="meta"), "is on `meta`"),
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "torch.qint8"),
    "conjugate": (lambda: torch.ones(3, dtype=torch.complex64).conj(), "pending conjugate"),
    "negative": (lambda: torch.ones(3, dtype=torch.complex64).conj().imag, "pending conjugate or negative"),
    "wrapper": (lambda: Wrapper(torch.ones(3)), "a `Wrapper` has no memory of its own"),
    "fake": (fake, "a `FakeTensor` has no memory of its own"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "torch: "),
    "nine dimensions": (lambda: torch.ones([1] * 9), "9 dimensions"),
    "zero tensor": (lambda: torch._efficientzerotensor(3), "has no memory"),
    "no tensor": (lambda: [1.0, 2.0], "found `list`"),
    "a number": (lambda: 3.0, "found `float`"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_cannot_be_measured_is_counted_and_told_once(open_monitor: Open, said: list[Any], what: str) -> None:
    make, why = UNSUPPORTED[what]
    monitor = open_monitor()
    identity, it = monitor.register("it", 0), make()
    for once in (False, True):
        assert monitor.observe(identity, GRAD, 0, it, once=once) is None
    assert monitor.sign_agreement(it, it) is None
    assert monitor.measure(it) == {}
    counts = monitor.counts()
    assert (counts["observed"], counts["not_sampled"]) == (2, 2)
    assert len(said) == 1
    assert why in said[0][1] and "grad_reduced of `it`" in said[0][1]


def test_under_functorch_nothing_is_measured_and_nothing_breaks(open_monitor: Open) -> None:
    monitor = open_monitor()
    identity = monitor.register("it", 0)

    def seen(row: torch.Tensor) -> torch.Tensor:
        assert monitor.observe(identity, GRAD, 0, row) is None
        return row * 2

    assert torch.equal(torch.vmap(seen)(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    assert monitor.counts()["not_sampled"] == 1


def test_a_subclass_is_measured_without_its_code_being_run(open_monitor: Open) -> None:
    noisy = torch.ones(9).as_subclass(Noisy)
    Noisy.heard.clear()
    monitor = open_monitor()
    assert monitor.observe(monitor.register("it", 0), GRAD, 0, noisy) == 3
    assert Noisy.heard == []


def test_a_mode_of_the_host_does_not_hear_the_monitor(open_monitor: Open) -> None:
    from torch.overrides import TorchFunctionMode

    heard = []

    class Listening(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return func(*args, **(kwargs or {}))

    monitor, tensor = open_monitor(), torch.ones(9)
    identity = monitor.register("it", 0)
    with Listening():
        assert monitor.observe(identity, GRAD, 0, tensor) == 3
        assert heard == []
        tensor.sum()
    assert len(heard) == 1


def test_parameters_and_their_gradients_are_plain(open_monitor: Open) -> None:
    monitor = open_monitor()
    parameter = torch.nn.Parameter(torch.full((5, 5), 2.0))
    (parameter**2).sum().backward()
    assert monitor.observe(monitor.register("p", 0), PARAM, 0, parameter) == 10
    assert monitor.observe(monitor.register("g", 0), GRAD, 0, parameter.grad) == 20


# Readings that are used twice.


def bytes_read(monitor: Monitor) -> str:
    """The share of the closing account that tells how much memory was read."""
    return next(line for line in monitor.report().splitlines() if line.startswith("cost")).rsplit(", ", 1)[-1]


def measured_twice(monitor: Monitor, first: int, then: int, tensor: torch.Tensor, change: Callable[[], Any]) -> float:
    identity = monitor.register("it", 0)
    monitor.observe(identity, first, 0, tensor, once=True)
    change()
    norm = monitor.observe(identity, then, 0, tensor, once=True)
    assert norm is not None
    return norm


CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda it: it.mul_(2),
    "behind torch's back": lambda it: it.data.mul_(2),
    "through numpy": lambda it: it.numpy().__imul__(2),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("strides", ["contiguous", "transposed"])
def test_a_written_tensor_is_read_again(open_monitor: Open, change: str, strides: str) -> None:
    tensor = torch.randn(300, 200, generator=torch.Generator().manual_seed(4))
    tensor = tensor.t() if strides == "transposed" else tensor
    expected = 2 * tensor.double().norm().item()
    found = measured_twice(open_monitor(), GRAD_EARLY, GRAD, tensor, lambda: CHANGES[change](tensor))
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_sparse_looking_gradient_is_always_read_again(open_monitor: Open) -> None:
    gradient = torch.zeros(50_000, 8)
    gradient[17] = 1.0
    found = measured_twice(open_monitor(), GRAD_EARLY, GRAD, gradient, lambda: gradient.data.mul_(0.5))
    assert found == pytest.approx(0.5 * math.sqrt(8))


def test_an_unwritten_tensor_is_read_once(open_monitor: Open) -> None:
    tensor = torch.ones(1 << 18)
    for first, then in ((GRAD_EARLY, GRAD), (PARAM_LATER, PARAM)):
        monitor = open_monitor()
        assert measured_twice(monitor, first, then, tensor, lambda: None) == 512
        monitor.end_step()
        monitor.end_step()
        assert bytes_read(monitor) == "1.0 MiB read"


def test_a_gradient_is_known_within_its_step_only_and_a_parameter_longer(open_monitor: Open) -> None:
    tensor = torch.ones(1 << 18)
    for kind, read in ((GRAD, "2.0 MiB read"), (PARAM, "1.0 MiB read")):
        monitor = open_monitor()
        measured_twice(monitor, kind, kind, tensor, monitor.end_step)
        monitor.end_step()
        monitor.end_step()
        assert bytes_read(monitor) == read


def test_activations_are_never_known(open_monitor: Open) -> None:
    monitor = open_monitor()
    measured_twice(monitor, ACTV, ACTV, torch.ones(1 << 18), lambda: None)
    monitor.end_step()
    monitor.end_step()
    assert bytes_read(monitor) == "2.0 MiB read"


def test_other_statistics_may_be_asked_for_in_mid_run(open_monitor: Open, said: list[Any]) -> None:
    monitor, tensor = open_monitor(ops=["min"]), torch.tensor([3.0, -4.0])
    identity = monitor.register("it", 0)
    assert monitor.ops() == ["min"]
    monitor.observe(identity, PARAM, 0, tensor, once=True)
    monitor.end_step()
    assert monitor.set_ops(["max", "shape", "nrm", "norm"]) == monitor.ops() == ["max", "norm"]
    assert [message for _, message, _ in said] == ["the unknown op `nrm` is ignored"]
    assert monitor.observe(identity, PARAM, 0, tensor, once=True) == 5, "the old reading has no norm"
    assert monitor.latest(PARAM)[0][3] == {"max": 3, "norm": 5}
    assert monitor.set_ops([]) == ["norm"]


def test_what_is_measured_of_a_kind_is_told(open_monitor: Open) -> None:
    def asked(monitor: Monitor, kind: int) -> tuple[set[str], float]:
        request = monitor.request(kind)
        assert request is not None
        return set(request[0]), request[1]

    watchful = open_monitor(ops=["max", "zeros"])
    assert asked(watchful, ACTV)[0] == {"max", "zeros", "norm"}, "what moved first is told by norms"
    monitor = open_monitor(ops=["max", "zeros"], param_distribution=None, eps=1e-3, alert={"rules": []})
    assert asked(monitor, ACTV) == ({"max", "zeros"}, 1e-3)
    assert asked(monitor, GRAD) == ({"max", "zeros", "norm"}, 1e-3), "the global norm is made of it"
    assert asked(monitor, UPDATE) == ({"max", "zeros", "norm"}, 1e-3), "the ratio is made of it"
    assert monitor.request(PARAM) is None
    monitor.set_ops(["min"])
    assert asked(monitor, ACTV)[0] == {"min"} and asked(monitor, GRAD)[0] == {"min", "norm"}
    scraped = open_monitor(ops=["max"], prometheus={"port": 0})
    assert asked(scraped, ACTV)[0] >= {"max", "absmax", "mean", "norm", "nans", "infs", "zeros"}


@pytest.mark.usefixtures("no_forced_switches")
def test_an_update_is_measured_again_when_other_statistics_are_asked_for_meanwhile(open_monitor: Open) -> None:
    monitor = open_monitor(ops=["max"])
    identity = monitor.register("it", 0)
    parameter, change = torch.zeros(1 << 20), torch.rand(1 << 20)
    for _ in range(200):
        monitor.set_ops(["max"])
        monitor.keep_copy(identity, parameter)
        parameter = parameter + change
        may_run, has_run = threading.Event(), threading.Event()

        def other(may_run: threading.Event = may_run, has_run: threading.Event = has_run) -> None:
            may_run.wait()
            monitor.set_ops(["std"])
            has_run.set()

        thread = threading.Thread(target=other)
        thread.start()
        may_run.set()
        monitor.observe_update(identity, parameter)
        ran_meanwhile = has_run.is_set()
        thread.join()
        found = [values for *_, values in monitor.latest(UPDATE)]
        monitor.skip_step()
        if ran_meanwhile:
            assert found == [{"std": pytest.approx(change.double().std().item(), rel=1e-3)}]
            return
        assert found == [], "what was measured before says nothing of what is asked for now"
    pytest.fail("the other thread never got the interpreter during a measurement")


# Derived numbers.


@pytest.mark.parametrize("size", [1000, 100_000])
def test_sign_agreement_is_torchs(open_monitor: Open, size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    gradient, moment = (torch.randn(size, generator=generator) for _ in range(2))
    gradient[:10] = 0
    expected = ((gradient.sign() * moment.sign()).double().sum() / size + 1) / 2
    monitor = open_monitor()
    assert monitor.sign_agreement(gradient, moment) == pytest.approx(expected.item(), rel=1e-12)
    assert monitor.sign_agreement(gradient, moment[:-1]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_an_update_is_the_difference(open_monitor: Open, dtype: torch.dtype) -> None:
    monitor = open_monitor()
    identity = monitor.register("it", 0)
    parameter = torch.randn(200, 300, generator=torch.Generator().manual_seed(6)).to(dtype).t()
    before = parameter.clone()
    monitor.keep_copy(identity, parameter)
    parameter.add_(0.01)
    monitor.observe_update(identity, parameter)
    change = parameter.double() - before.double()
    [(name, chunk, micro_step, values)] = monitor.latest(UPDATE)
    assert (name, chunk, micro_step) == ("it", 0, 0)
    for op, value in answers(change).items():
        assert values[op] == pytest.approx(value, rel=1e-6, abs=1e-9), op
    ratio = monitor.latest(RATIO)[0][3]["update_ratio"]
    assert ratio == pytest.approx((change.norm() / before.double().norm()).item(), rel=1e-6)


def test_a_copy_serves_one_update_and_a_changed_shape_is_told(open_monitor: Open, said: list[Any]) -> None:
    monitor = open_monitor()
    identity = monitor.register("it", 0)
    monitor.observe_update(identity, torch.ones(3))
    assert monitor.counts()["observed"] == 0, "without a copy there is nothing to tell"
    monitor.keep_copy(identity, torch.ones(3))
    monitor.observe_update(identity, torch.ones(4))
    monitor.observe_update(identity, torch.ones(3))
    assert monitor.counts()["not_sampled"] == 1
    assert "[3] before the step and is torch.float32 [4] now" in said[-1][1]


def test_numbers_of_features_are_recorded(open_monitor: Open) -> None:
    monitor = open_monitor(mg_direction=True, wg_distribution=True)
    kind = KINDS.index("mg_direction")
    monitor.record_values(monitor.register("it", 0), kind, 0, [0.75])
    assert monitor.latest(kind)[0][3]["mean"] == 0.75
    with pytest.raises(ValueError, match="values of mg_direction: expected 1, found 2"):
        monitor.record_values(0, kind, 0, [1.0, 2.0])


# Holds and steps.


def row(tensor: torch.Tensor) -> list[float]:
    answer = answers(tensor)
    answer["zeros"] *= answer["count"]
    return [answer[column] for column in DEVICE_COLUMNS]


def test_rows_of_a_hold_belong_to_its_step(open_monitor: Open) -> None:
    monitor = open_monitor()
    tensors = [torch.randn(7, 3), torch.tensor([[5, -2], [0, 1]])]
    table = torch.tensor([row(tensor) for tensor in tensors], dtype=torch.float64)
    labels = [
        (monitor.register(f"t{place}", 0), GRAD, 0, str(tensor.dtype), tuple(tensor.shape))
        for place, tensor in enumerate(tensors)
    ]
    pending = monitor.pending_step()
    monitor.end_step()
    norms = pending.record_rows(labels, [(table, place) for place in range(len(tensors))])
    assert pending.step == 0 and monitor.step == 1
    assert norms == [pytest.approx(tensor.double().norm().item()) for tensor in tensors]
    for (_, _, _, values), tensor in zip(monitor.latest(GRAD), tensors, strict=True):
        assert_equal(values, answers(tensor))
    pending.release()
    pending.release()
    monitor.shutdown()
    assert monitor.counts()["accepted"] == 2


def test_a_row_after_the_release_is_counted_as_not_measured(open_monitor: Open, said: list[Any]) -> None:
    monitor = open_monitor()
    pending = monitor.pending_step()
    pending.release()
    table = torch.ones((1, 8), dtype=torch.float64)
    pending.record_rows([(monitor.register("it", 0), GRAD, 0, "torch.float32", [2])], [(table, 0)])
    assert monitor.counts()["not_sampled"] == 1
    assert "after its step was released" in said[-1][1]


def test_a_table_that_cannot_be_one_is_refused(open_monitor: Open) -> None:
    pending = open_monitor().pending_step()
    label = (0, GRAD, 0, "torch.float32", [2])
    table = torch.ones((4, 8), dtype=torch.float64)
    for wrong, found in [
        (table[:, :7], r"float64 of shape \[4, 7\]"),
        (table.float(), r"float32 of shape \[4, 8\]"),
        (table.t().contiguous().t(), r"float64 of shape \[4, 8\]"),
        (table[0], r"float64 of shape \[8\]"),
    ]:
        with pytest.raises(ValueError, match=f"table: expected contiguous float64 rows of 8 columns, found .*{found}"):
            pending.record_rows([label], [(wrong, 0)])
    with pytest.raises(ValueError, match=r"table: rows 4\.\.5 are out of range: it has rows 0\.\.4"):
        pending.record_rows([label], [(table, 4)])
    for foreign in (table.to("meta"), 8):
        with pytest.raises(ValueError, match="table: "):
            pending.record_rows([label], [(foreign, 0)])
    with pytest.raises(ValueError, match="one place per label, found labels: 1, places: 0"):
        pending.record_rows([label], [])
    assert pending.record_rows([], []) == []


def test_loss_and_gradient_norm_reach_the_step_table(open_monitor: Open) -> None:
    monitor = open_monitor()
    monitor.end_step(loss=1.5, learning_rate=0.1, grad_norm=3.0)
    pending = monitor.pending_step()
    monitor.end_step()
    pending.set_grad_norm(4.0)
    pending.set_loss(2.5)
    pending.release()
    pending.set_loss(99.0)
    monitor.end_step()
    [directory, *_] = dict(monitor.locations())["csv"]
    monitor.shutdown()
    lines = (Path(directory) / "steps.csv").read_text(encoding="utf-8").splitlines()
    for column, expected in (("grad_norm", [3, 4]), ("loss", [1.5, 2.5])):
        place = lines[0].split(",").index(column)
        found = [float(line.split(",")[place] or "nan") for line in lines[1:]]
        assert found[:2] == expected and math.isnan(found[2]), "what nobody brought is not made up"


def test_outside_the_window_nothing_is_read(open_monitor: Open) -> None:
    monitor = open_monitor(start_step=1)
    identity = monitor.register("it", 0)
    assert not monitor.collecting and not monitor.wants(GRAD) and monitor.configured(GRAD)
    assert monitor.observe(identity, GRAD, 0, torch.ones(4)) is None
    monitor.end_step()
    assert monitor.wants(GRAD)
    assert monitor.observe(identity, GRAD, 0, torch.ones(4)) == 2
    monitor.skip_step()
    assert monitor.step == 1
    counts = monitor.counts()
    assert (counts["observed"], counts["not_sampled"]) == (2, 2)


def test_a_missing_tensor_is_a_record_of_its_own(open_monitor: Open) -> None:
    monitor = open_monitor()
    identity = monitor.register("it", 0)
    monitor.observe_missing(identity, ACTV, 0)
    assert monitor.observe(identity, ACTV, 0, None) is None
    assert monitor.counts()["not_sampled"] == 0


def test_threads_may_observe_at_once(open_monitor: Open) -> None:
    monitor = open_monitor()
    identities = [monitor.register(f"t{place}", 0) for place in range(4)]

    def work(identity: int) -> None:
        for size in (10, 20_000):
            for _ in range(200):
                assert monitor.observe(identity, GRAD, 0, torch.ones(size), once=True) == pytest.approx(math.sqrt(size))

    threads = [threading.Thread(target=work, args=(identity,)) for identity in identities]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.counts()["observed"] == 4 * 2 * 200


# Configs and words.


def test_every_fault_of_a_config_is_named() -> None:
    text = '{"targets": {},\n "ops": ["mni"],\n "wg_distribution": 3, "format": "csv"}'
    with pytest.raises(ConfigError) as caught:
        ParsedConfig(text, file="mine.json")
    first, second = [line for line in str(caught.value).splitlines() if line.startswith("mine.json:")]
    assert first.startswith("mine.json:2:10: key `ops[0]`: expected one of `min`")
    assert "did you mean `min`?" in first
    assert second.startswith("mine.json:3:21: key `wg_distribution`: expected true or false, found 3")
    assert issubclass(ConfigError, ValueError)


def test_a_rank_outside_its_job_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="rank 3 is out of range: the world size is 2"):
        Monitor.start(ParsedConfig('{"targets": {}, "format": "csv"}'), rank=3, world_size=2, output_dir=str(tmp_path))


def test_wrong_arguments_are_named(open_monitor: Open) -> None:
    monitor = open_monitor()
    with pytest.raises(ValueError, match=f"kind 99: expected an index of KINDS, 0 to {len(KINDS) - 1}"):
        monitor.observe(0, 99, 0, torch.ones(1))
    with pytest.raises(ValueError, match="phase `lunch`: expected one of measure, launch, offer"):
        monitor.add_cost("lunch", 1.0)
    with pytest.raises(ValueError, match="severity `loud`"):
        monitor.say("loud", "hello")


def test_the_listener_hears_and_its_failure_is_nobodys(
    tmp_path: Path, open_monitor: Open, said: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    open_monitor().say("info", "a word", "a hint")
    assert said == [("info", "a word", "a hint")]

    def failing(*_: Any) -> None:
        raise RuntimeError("deaf")

    monitor = Monitor.start(
        ParsedConfig('{"targets": {}, "format": "csv", "wg_distribution": true}'),
        output_dir=str(tmp_path / "deaf"),
        listener=failing,
    )
    monitor.say("warning", "another word")
    assert "another word" in capfd.readouterr().err, "what the listener did not hear is said on standard error"


def test_names_are_squashed() -> None:
    assert squash_name("module.decoder.layers.3.mlp.weight") == "layers.3.mlp.weight"


def test_targets_and_names_are_the_configs(open_monitor: Open) -> None:
    monitor = open_monitor(targets={"layers.1": {}}, all_xy=None)
    assert monitor.matches_parameter("a.layers.1.weight", "layers.1.weight", 0)
    assert not monitor.matches_parameter("a.layers.2.weight", "layers.2.weight", 0)
    assert monitor.matches_module("layers.1", 0) and not monitor.matches_module("layers.2", 0)
    assert monitor.activation_name("fc", True, False, 0, 1, 0) == "fc.output"
    settings = monitor.settings()
    assert not settings.is_v2 and not settings.like_msprobe and monitor.settings(like_msprobe=True).like_msprobe


@pytest.mark.parametrize(
    ("keys", "needs_agreement", "directory"),
    [
        ({"stop_step": 9, "output_dir": "control"}, False, None),
        ({"control": {}}, True, None),
        ({"control": {"enabled": False}}, False, None),
        ({"control": {"directory": "shared"}}, True, Path("shared")),
        ({"alert": {"rules": [{"rule_name": "Spike", "actions": ["log"]}]}}, False, None),
        ({"alert": {"rules": [{"rule_name": "Spike", "actions": ["stop"]}]}}, True, None),
    ],
)
def test_ranks_agree_upon_what_may_change_only(
    keys: dict[str, Any], needs_agreement: bool, directory: Path | None
) -> None:
    config = ParsedConfig("// With a comment.\n" + json.dumps({"wg_distribution": True, **keys}))
    assert (config.needs_agreement, config.control_directory) == (needs_agreement, directory)


def test_the_dynamic_mode_needs_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    assert ParsedConfig('{"wg_distribution": true}').needs_agreement
