"""The kernels for tensors on a device, run on the CPU by Triton's interpreter, against the host's kernels: generated
tensors of every dtype, size, alignment and sort of values. `TRAINMON_TEST_MATRIX=full` makes 10,000 of them.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from support import ranks
from support.interpreted import KERNELS, InterpretedKernels
from support.layouts import READABLE
from support.matrix import IS_FULL
from trainmon._trainmon import DEVICE_COLUMNS, DeviceTables, Monitor
from trainmon.device.fingerprints import DeviceFingerprints
from trainmon.device.launcher import COPY, Launcher
from trainmon.watches import startup

EPS = 1e-8
#: Cases of one table.
CASES = 80
TABLES = 125 if IS_FULL else 10
#: Elements of the largest tensor.
LARGEST = 5_000_000 if IS_FULL else 300_000

FLOATS = [
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
]
WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = [getattr(torch, name) for name in (*FLOATS, *WHOLE, "bool", "complex64", "complex128")]
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Cases:
    """Tensors made by chance, the same from run to run."""

    def __init__(self, seed: int) -> None:
        self.chance = generator(seed)

    def below(self, end: int) -> int:
        return int(torch.randint(end, (), generator=self.chance))

    def of(self, choices: list[Any]) -> Any:
        return choices[self.below(len(choices))]

    def size(self) -> int:
        """At the kernels' own edges, and of any magnitude."""
        edge = self.of([1, 1024, 4096, 32768])
        return self.of(
            [0, 1, 2, self.below(40), self.below(600), edge - 1, edge, edge + 1, self.below(9000), self.below(40000)]
        )

    def tensor(self, dtype: torch.dtype | None = None, size: int | None = None) -> torch.Tensor:
        """Somewhere in a larger piece of memory."""
        dtype = self.of(DTYPES) if dtype is None else dtype
        size = self.size() if size is None else size
        before = self.of([0, 0, 0, 1, 3, 8, 16])
        memory = torch.zeros(before + size + 5, dtype=dtype)
        # What is beside it must not be read.
        memory.copy_(torch.full((), math.nan).to(dtype) if dtype.is_floating_point else torch.ones((), dtype=dtype))
        part = memory[before : before + size]
        part.copy_(self.values(dtype, size))
        return part

    def values(self, dtype: torch.dtype, size: int) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(size, generator=self.chance) < self.of([0.0, 0.01, 0.5, 1.0])
        if dtype.is_complex:
            part = torch.float32 if dtype == torch.complex64 else torch.float64
            return torch.complex(self.reals(part, size), self.reals(part, size))
        if dtype.is_floating_point:
            return self.reals(dtype, size)
        return self.bits(dtype, size) if self.below(2) else torch.randint(100, (size,), generator=self.chance).to(dtype)

    def bits(self, dtype: torch.dtype, size: int) -> torch.Tensor:
        """Any: NaN with payloads, infinities, subnormal numbers among them."""
        width = torch.empty((), dtype=dtype).element_size()
        return torch.randint(256, (size * width,), dtype=torch.uint8, generator=self.chance).view(dtype)

    def reals(self, dtype: torch.dtype, size: int) -> torch.Tensor:
        sort = self.below(14)
        if sort == 0:
            return self.bits(dtype, size)
        normal = torch.randn(size, dtype=torch.float64, generator=self.chance)
        limits = torch.finfo(dtype)
        if sort == 1:
            return torch.zeros(size, dtype=dtype)
        if sort == 2:
            return torch.full((size,), -0.0, dtype=dtype)
        if sort == 3:
            return torch.full((size,), float(normal[:1].sum()), dtype=torch.float64).to(dtype)
        if sort == 4:  # a small spread around a large mean
            return (1.0 + normal * self.of([1e-1, 1e-3, 1e-6, 1e-9])).to(dtype)
        if sort == 5:  # up to the edges of the type, without leaving it
            return (normal.clamp(-4, 4) / 4 * limits.max).to(dtype)
        if sort == 6:
            return (normal * limits.tiny * self.of([1.0, 0.1, 100.0])).to(dtype)
        if sort == 7:  # of magnitudes that have nothing in common
            return (normal * 10 ** torch.empty(size, dtype=torch.float64).uniform_(-30, 15, generator=self.chance)).to(
                dtype
            )
        if sort == 8:
            return (normal * self.of([1e-25, 1e-20, 1e-15, 1e15, 1e20, 1e30])).to(dtype)
        if sort == 9:
            return normal.sort().values.to(dtype)
        found = (normal * self.of([1.0, 1e-3, 1e-6])).to(dtype)
        spoilt = self.of([(), (), (math.nan,), (math.inf,), (-math.inf, math.inf), (math.inf, math.nan), (0.0,)])
        for value in spoilt[:size]:
            found[self.below(size)] = torch.tensor(value, dtype=torch.float64).to(dtype)
        return found


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Monitor:
    config = {"targets": {}, "format": "csv", "ops": [*DEVICE_COLUMNS], "eps": EPS}
    return startup.start_monitor(config, output_dir=str(tmp_path_factory.mktemp("host")), rank=0, listener=print)


def by_kernels(tensors: list[torch.Tensor]) -> torch.Tensor:
    launcher = Launcher(InterpretedKernels(), torch.device("cpu"))
    launch = launcher.prepare([(one, None, 0, EPS, True) for one in tensors])
    assert not launch.left_out
    table = torch.empty((len(tensors), len(DEVICE_COLUMNS)), dtype=torch.float64)
    launcher.launch(launch, table, 1.0)
    return table


def wrong(tensor: torch.Tensor, host: dict[str, float], device: list[float]) -> list[str]:
    """What is not as good as promised: counts, min and max exact (magnitudes of complex128 but for their last bits),
    sums to 1e-7 of the value, the mean of the root mean square. A deviation that is nothing but the mean's own rounding
    (in float64) is 0 on either side; nothing is promised of float64 sums that leave float64."""
    found = dict(zip(DEVICE_COLUMNS, device, strict=True))
    allowed = {"norm": 1e-7 * host["norm"], "mean": 1e-7 * host["norm"] / math.sqrt(tensor.numel())}
    allowed["std"] = 1e-7 * host["std"] + 4e-15 * abs(host["mean"])
    if tensor.dtype == torch.complex128:
        allowed |= {name: 4e-16 * host[name] + 1e-323 for name in ("min", "max")}
    largest = max(abs(host["min"]), abs(host["max"]))
    if math.isfinite(largest) and largest > sys.float_info.max / tensor.numel():
        host = {name: value for name, value in host.items() if name not in ("mean", "std")}
    # The host's is told as a share, of bool not at all.
    share = float((~tensor).sum()) / tensor.numel() if tensor.dtype == torch.bool else host["zeros"]
    bad = []
    for name, value in {**host, "zeros": round(share * tensor.numel())}.items():
        got, margin = found[name], allowed.get(name, 0.0)
        same = math.isnan(got) if math.isnan(value) else got == value or abs(got - value) <= margin
        if not same:
            bad.append(f"{name}: {got!r}, the host has {value!r}")
    return bad


def check(tensors: list[torch.Tensor], monitor: Monitor) -> None:
    problems = []
    for tensor, row in zip(tensors, by_kernels(tensors).tolist(), strict=True):
        if tensor.numel():
            bad = wrong(tensor, monitor.measure(tensor), row)
            at = tensor.data_ptr() % 16
            problems += [f"{tensor.dtype} of {tensor.numel()} at {at}: {bad} in {tensor[:8]}"] if bad else []
    assert not problems, f"{len(problems)} of {len(tensors)}:\n" + "\n".join(problems[:12])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What the sources compile to for the target that the crate carries, and what is said of every target."""
    made, cache = tmp_path_factory.mktemp("compiled"), tmp_path_factory.mktemp("cache")
    said = ""
    for option in (str(made), "--report"):
        command = [sys.executable, str(KERNELS / "compile.py"), option]
        said = ranks.run(command, environment={"TRITON_CACHE_DIR": str(cache)})
    return made, said


def test_the_crate_carries_what_the_sources_compile_to(compiled: tuple[Path, str]) -> None:
    made, _ = compiled
    carried = KERNELS / "compiled"
    assert sorted(path.name for path in carried.iterdir()) == sorted(path.name for path in made.iterdir())
    stale = [path.name for path in made.iterdir() if path.read_text() != (carried / path.name).read_text()]
    assert not stale, "run `cargo xtask device-kernels`"


def test_the_kernels_compile_for_every_target_and_the_document_says_how(compiled: tuple[Path, str]) -> None:
    _, said = compiled
    print(said)
    for target in ("cuda 80", "cuda 90", "cuda 100", "hip gfx942"):
        assert said.count(f"| {target} |") == 7
    # Nothing is read twice: four bytes of float32, two of bfloat16, and two of another type of 16 bits.
    assert "`partial` reads 8 bytes of one element of each kind" in said
    document = (KERNELS.parents[2] / "docs" / "proof" / "device.md").read_text()
    assert not [line for line in said.splitlines() if line.startswith(("|", "`")) and line not in document], (
        "docs/proof/device.md has other figures"
    )


@pytest.mark.parametrize("seed", range(TABLES))
def test_generated_tensors_have_the_hosts_statistics(monitor: Monitor, seed: int) -> None:
    cases = Cases(seed)
    check([cases.tensor() for _ in range(CASES)], monitor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_pattern_of_small_types_and_random_ones_of_large(monitor: Monitor, dtype: torch.dtype) -> None:
    width = torch.empty((), dtype=dtype).element_size()
    if dtype == torch.bool:
        every = torch.tensor([False, True])
    elif width <= 2:
        every = torch.arange(1 << 8 * width).to(torch.uint8 if width == 1 else torch.int32).to(BITS[width]).view(dtype)
    else:
        every = Cases(7).bits(dtype, 20_000)
    finite = every[torch.isfinite(every.double() if not dtype.is_complex else every.abs().double())]
    alone = [every[place : place + 1].clone() for place in range(0, every.numel(), max(1, every.numel() // 100))]
    check([every, finite, *alone], monitor)


def test_a_tensor_of_many_chunks(monitor: Monitor) -> None:
    cases = Cases(11)
    check([cases.tensor(torch.bfloat16, LARGEST), cases.tensor(torch.float32, LARGEST // 4)], monitor)


def test_results_are_the_same_bits_from_run_to_run() -> None:
    cases = Cases(13)
    tensors = [cases.tensor() for _ in range(20)]
    assert torch.equal(by_kernels(tensors).view(torch.int64), by_kernels(tensors).view(torch.int64))


@pytest.mark.parametrize("way", ["number", "float32", "float64"])
def test_a_factor_multiplies_the_first_five_and_moves_the_bound_of_zeros(way: str) -> None:
    values = torch.tensor([1e-6, 2e-6, -3.0, 0.0])
    factor: Any = 2.0**-8 if way == "number" else torch.tensor(2.0**-8, dtype=getattr(torch, way))
    launcher = Launcher(InterpretedKernels(), torch.device("cpu"))
    table = torch.empty((1, 8), dtype=torch.float64)
    launcher.launch(launcher.prepare([(values, None, 0, 1.5e-6 / 256, True)]), table, factor)
    exact = values.double() / 256
    expected = [exact.min(), exact.max(), exact.mean(), exact.norm(), exact.std(), 0, 0, 2]
    assert table[0].tolist() == pytest.approx([float(one) for one in expected], rel=1e-12)


PAIRS = ["float32", "bfloat16", "float16", "float64"]


@pytest.mark.parametrize("after", PAIRS)
@pytest.mark.parametrize("before", PAIRS)
def test_differences_and_agreements_are_torchs(before: str, after: str) -> None:
    shown, expected = [], []
    for seed in range(6):
        cases = Cases(seed)
        size = (1, 40, 1023, 4096, 4099, 40_000)[seed]
        was = torch.randn(size, generator=cases.chance).to(getattr(torch, before))
        now = (was.double() * (1 + 1e-3 * torch.randn(size, generator=cases.chance))).to(getattr(torch, after))
        now[:: 7 + seed] *= -1
        was[::11] = 0
        shown += [(now, was, 1, EPS, True), (now, was, 2, None, False)]
        arithmetic = torch.float64 if torch.float64 in (was.dtype, now.dtype) else torch.float32
        change = (now.to(arithmetic) - was.to(arithmetic)).double()
        zeros = int((change.abs() < EPS).sum())
        std = float(change.std()) if size > 1 else math.nan
        row = [change.min(), change.max(), change.mean(), change.norm(), std, 0, 0, zeros]
        signs = (now.double().sign() * was.double().sign()).mean()
        expected += [[float(one) for one in row], float((signs + 1) / 2)]
    launcher = Launcher(InterpretedKernels(), torch.device("cpu"))
    table = torch.empty((len(shown), 8), dtype=torch.float64)
    launch = launcher.prepare(shown)
    assert not launch.left_out
    launcher.launch(launch, table, 1.0)
    for row, wanted in zip(table.tolist(), expected, strict=True):
        if isinstance(wanted, float):
            assert row[0] == pytest.approx(wanted, rel=1e-12)
        else:
            assert row == pytest.approx(wanted, rel=1e-7, abs=1e-12, nan_ok=True)


def test_a_nan_or_a_zero_agrees_with_nothing_and_counts_half() -> None:
    one = torch.tensor([1.0, math.nan, 0.0, -math.inf])
    other = torch.tensor([math.inf, 1.0, -1.0, 2.0])
    launcher = Launcher(InterpretedKernels(), torch.device("cpu"))
    table = torch.empty((1, 8), dtype=torch.float64)
    launcher.launch(launcher.prepare([(one, other, 2, None, False)]), table, 1.0)
    assert table[0, 0] == (1 + 0 + 0 - 1) / 4 / 2 + 0.5


@pytest.mark.parametrize("name", READABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16], ids=str)
def test_tensors_are_read_however_they_lie(name: str, dtype: torch.dtype, monitor: Monitor) -> None:
    base = torch.randn(6, 8, generator=generator(3))
    tensor = READABLE[name]((base * 100).to(dtype))
    if tensor.dtype == dtype:
        check([tensor], monitor)


def test_a_large_tensor_with_gaps(monitor: Monitor) -> None:
    base = torch.randn(200, 600, generator=generator(4))
    check([base.chunk(3, dim=1)[1], base.bfloat16()[:, 7:599], base[:, ::3], base[:7].expand(3, 7, 600)], monitor)


UNREADABLE = {
    "three levels": lambda x: x.view(2, 3, 8)[:, :2, ::2],
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "negative": lambda x: torch.complex(x, x).conj().imag,
    "overlapping": lambda x: torch.as_strided(x, (4, 4), (2, 1)),
    "sparse": lambda x: x.to_sparse(),
    "freed": lambda x: (x.untyped_storage().resize_(0), x)[1],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_does_not_fit_is_left_to_torchs_operators(name: str) -> None:
    tensor = UNREADABLE[name](torch.randn(6, 8, generator=generator(3)))
    _, left_out = DeviceTables().of([(one, None, 0, None, False) for one in (torch.ones(3), tensor, torch.ones(2))])
    assert left_out == [1]


def test_two_tensors_that_are_not_laid_out_alike_are_left_to_torchs_operators() -> None:
    one = torch.randn(4, 4)
    for other in (torch.randn(4, 4).t(), torch.randn(16), torch.randn(4, 4)[:, ::2]):
        _, left_out = DeviceTables().of([(one, other, 1, None, False)])
        assert left_out == [0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fingerprints_are_the_operators(dtype: torch.dtype) -> None:
    cases = Cases(17)
    tensors = [cases.tensor(dtype, size) for size in (0, 1, 5, 1024, 32768, 40_000)]
    tensors += [torch.ones(6, 4).to(dtype).t(), torch.ones(6, 4).to(dtype)[:, ::2]]
    plain = DeviceFingerprints().launch(tensors)()
    assert plain == DeviceFingerprints(lambda _device: InterpretedKernels()).launch(tensors)()
    assert plain is not None and None not in plain


def test_fingerprints_of_more_than_one_piece_are_the_operators(tmp_path: Path) -> None:
    tensors = [torch.randint(-99, 99, (size,), generator=generator(size)).short() for size in (1 << 20, (1 << 20) + 5)]
    plain = DeviceFingerprints().launch(tensors)()
    assert plain == DeviceFingerprints(lambda _device: InterpretedKernels()).launch(tensors)()


def copied(launcher: Launcher, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[int]:
    """Copies the first tensor of each pair into the second. The places of those that are left out."""
    launch = launcher.prepare([(one, copy, COPY, None, False) for one, copy in pairs])
    launcher.copy(launch)
    return list(launch.left_out)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", [one for one in DTYPES if one != torch.complex128], ids=str)
def test_copies_have_the_same_bits_and_nothing_beside_them_is_written(dtype: torch.dtype) -> None:
    cases, kernels = Cases(23), InterpretedKernels()
    sources = [cases.tensor(dtype, size) for size in (0, 1, 5, 1024, 4096, 32768, 40_000)]
    around = [torch.ones(one.numel() + 9).to(dtype) for one in sources]
    targets = [
        one[before : one.numel() - 9 + before] for one, before in zip(around, (0, 1, 4, 0, 0, 0, 3), strict=True)
    ]
    assert not copied(Launcher(kernels, torch.device("cpu")), list(zip(sources, targets, strict=True)))
    assert kernels.launches == 1
    for source, target, whole in zip(sources, targets, around, strict=True):
        assert torch.equal(bits_of(target), bits_of(source))
        target.copy_(torch.ones((), dtype=dtype))
        assert torch.equal(bits_of(whole), bits_of(torch.ones(whole.numel()).to(dtype)))


@pytest.mark.parametrize("layout", READABLE)
def test_copies_of_tensors_with_gaps_keep_what_lies_between(layout: str) -> None:
    base = torch.randn(6, 8, generator=generator(5))
    memory = torch.full((6, 8), math.nan)
    source, target = READABLE[layout](base), READABLE[layout](memory)
    left_out = copied(Launcher(InterpretedKernels(), torch.device("cpu")), [(source, target)])
    # More than one element would be written to the same place.
    assert left_out == ([0] if "expanded" in layout else [])
    expected = torch.full((6, 8), math.nan)
    if not left_out:
        READABLE[layout](expected).copy_(source)
    assert torch.equal(bits_of(memory), bits_of(expected))


def test_what_no_kernel_copies_is_left_out() -> None:
    pairs = [
        (torch.ones(3), torch.ones(3).bfloat16()),
        (torch.ones(3).int(), torch.ones(3)),
        (torch.ones(3, dtype=torch.complex128), torch.ones(3, dtype=torch.complex128)),
        (torch.ones(2, 3), torch.ones(3, 2).t()),
        (torch.ones(2, 3), torch.zeros(2, 3)),
    ]
    assert copied(Launcher(InterpretedKernels(), torch.device("cpu")), pairs) == [0, 1, 2, 3]
    assert torch.equal(pairs[-1][1], torch.ones(2, 3))
