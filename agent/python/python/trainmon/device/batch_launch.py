"""Measurement of queued tensors on the current streams: by the kernels if they are available and can read them, else by
torch's operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from trainmon._trainmon import DEVICE_COLUMNS, Monitor, PendingStep
from trainmon.common.kinds import Kind
from trainmon.device.copies import Pair
from trainmon.device.launcher import AGREEMENT, COPY, DIFFERENCE, VALUES, Factor, Kernels, Launcher, Record, Shown
from trainmon.device.launchers import Launchers
from trainmon.device.pages import COLUMNS, Block, Entry, Numbers, Statistics, recorded, refuse
from trainmon.device.reductions import GATHERED, SCALED, Batch, Lengths, Values, Wants, agreement, parts_of, zero_bound
from trainmon.device.targets import Target, gathering, identity, portions, values_of
from trainmon.device.transfers import Transfers, first_line
from trainmon.measurement.labels import UNSCALED, NormSink
from trainmon.measurement.norm import UNKNOWN, StepNorm
from trainmon.measurement.unobserved import quietly

_NORM = DEVICE_COLUMNS.index("norm")
_ONLY_NORM = Wants.of("norm")
#: The statistics of a kind that the config does not mention.
_WITHOUT_CONFIG = Wants.of("min", "max", "mean", "norm", eps=1e-8)

#: The number of remembered layouts of gathered tensors; a model has a few per kind.
_MOST_LAYOUTS = 512


Key = TypeVar("Key", bound=Hashable)


class Ratio:
    """The norm of a change divided by that of the changed tensor: of two rows that arrive together, the change's
    first."""

    def __init__(self, tensor_id: int) -> None:
        self._tensor_id = tensor_id
        self._change = float("nan")

    def heard_change(self, norm: float) -> None:
        """Receives the change's norm."""
        self._change = norm

    def deliver(self, pending: PendingStep, row: Sequence[float]) -> None:
        """Receives the row of the changed tensor."""
        before = row[_NORM]
        # As in torch's division: 0 / 0 is NaN, anything else over 0 is infinite.
        ratio = self._change / before if before else self._change * float("inf")
        pending.record_values(self._tensor_id, Kind.UPDATE_RATIO, 0, (ratio,))


@dataclass(slots=True, frozen=True)
class Records:
    """Tensors that become records, to be measured together."""

    shown: list[Record]
    factor: Factor
    norm: StepNorm | None
    """The sum to which their norms are added."""
    uncounted: set[int]
    """The positions of those whose norm is not added."""
    order: int


def _unknown(norm: NormSink, _found: float) -> None:
    norm(UNKNOWN)


class BatchLaunch:
    """Measures the tensors of one queue. Requires the lock of the queue."""

    def __init__(self, monitor: Monitor, transfers: Transfers, launchers: Launchers) -> None:
        self._monitor = monitor
        self._transfers = transfers
        self._launchers = launchers
        self._layouts: dict[Hashable, Lengths] = {}
        self._has_said_what_is_left_out = False

    def kernels(self, device: torch.device) -> Kernels | None:
        """Those of a device that are in use."""
        return self._launchers.kernels(device)

    def launch(self, targets: Sequence[Target]) -> None:
        """Starts measuring all of them. Those that cannot be measured are counted."""
        if len(targets) == 1 and self._one(targets[0]):
            return
        for (device, _), group in _grouped(targets, lambda one: (one.tensor.device, identity(one.factor))).items():
            launcher = self._launchers.of(device)
            left = group if launcher is None else self._by_kernels(launcher, device, group)
            by_how = _grouped(left, lambda one: (one.shows, self._wants(one), gathering(one)))
            for (shows, *_), some in by_how.items():
                by = self._by_agreement if shows == AGREEMENT else self._by_operators
                self._guarded(device, some, by)

    def launch_all(self, records: Records) -> Sequence[int]:
        """Starts measuring all of these with one launch per device. Returns the positions of those that it cannot
        measure, which must be queued one by one."""
        left: Sequence[int] = range(len(records.shown))
        while left:
            device = records.shown[left[0]][1].device
            launcher = self._launchers.of(device)
            is_closed = self._transfers.streams(device).refusal() is not None
            rest = left if launcher is None or is_closed else self._block(launcher, device, records, left)
            if len(rest) == len(left):
                break
            left = rest
        return left

    def _block(
        self, launcher: Launcher, device: torch.device, records: Records, places: Sequence[int]
    ) -> Sequence[int]:
        try:
            with quietly(device.type):
                shown, uncounted = records.shown, records.uncounted
                if len(places) < len(shown):
                    uncounted = {at for at, place in enumerate(places) if place in uncounted}
                    shown = [shown[place] for place in places]
                launch, rows = launcher.prepare_all(self._monitor, shown, uncounted)
                norm = None if records.norm is None else records.norm.later()
                if norm is not None and len(rows) + len(launch.left_out) < len(shown):
                    # Some are not measured in this step, on purpose.
                    norm = functools.partial(_unknown, norm)
                block = Block(rows, norm, records.order)
                page = self._transfers.page_for(device, [block])
                if page is not None:
                    launcher.launch(launch, page.free(len(rows)), records.factor)
                    page.take([block])
        except Exception as error:  # a device out of memory, say
            self._launchers.refuse(device, first_line(error))
            return places
        return [places[at] for at in launch.left_out]

    def copy(self, device: torch.device, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Copies values with one launch. Returns those that it cannot copy."""
        launcher = self._launchers.of(device)
        if launcher is None:
            return pairs
        try:
            launch = launcher.prepare([(values, kept, COPY, None, False) for kept, values in pairs])
            launcher.copy(launch)
        except Exception as error:  # as above
            self._launchers.refuse(device, first_line(error))
            return pairs
        return [pairs[place] for place in launch.left_out]

    def _guarded(
        self, device: torch.device, group: Sequence[Target], body: Callable[[torch.device, Sequence[Target]], None]
    ) -> None:
        try:
            with quietly(device.type):
                body(device, group)
                self._keep(group)
        except Exception as error:  # a device out of memory, say: the training goes on without these
            refuse(self._monitor, [target.entry for target in group], f"torch: {first_line(error)}")

    # By the kernels.

    def _one(self, target: Target) -> bool:
        """A single tensor, as hooks pass them. Returns whether nothing else is left to do. Cost: half of that of the
        general path."""
        if target.other is not None or not isinstance(target.entry, Statistics):
            return False
        device = target.tensor.device
        try:
            launcher = self._launchers.of(device)
            if launcher is None:
                return False
            # It is one row: it is compared with no other tensor.
            [(_, shown, entry)] = self._rows_of(target)
            with quietly(device.type):
                page = self._transfers.page_for(device, [entry])
                if page is None:
                    return True
                if not launcher.launch_one(shown, page.free_address, target.factor):
                    return False
                page.take([entry])
                self._keep([target])
        except Exception as error:  # as below
            self._launchers.refuse(device, first_line(error))
            return False
        return True

    def _by_kernels(self, launcher: Launcher, device: torch.device, group: Sequence[Target]) -> Sequence[Target]:
        """Returns those that are left to torch's operators."""
        fitting: list[Target] = []
        left: list[Target] = []
        for target in group:
            (fitting if _is_alike(target) else left).append(target)
        rows = [row for target in fitting for row in self._rows_of(target)]
        try:
            with quietly(device.type):
                launch = launcher.prepare([shown for _, shown, _ in rows])
                left_out = set(launch.left_out)
                entries = [entry for place, (_, _, entry) in enumerate(rows) if place not in left_out]
                left += {id(rows[place][0]): rows[place][0] for place in launch.left_out}.values()
                page = self._transfers.page_for(device, entries) if entries else None
                if page is not None:
                    launcher.launch(launch, page.free(len(entries)), group[0].factor)
                    page.take(entries)
                    self._keep(group)
        except Exception as error:  # as above; nothing says that the operators would fare worse
            self._launchers.refuse(device, first_line(error))
            return group
        if left and not self._has_said_what_is_left_out:
            self._has_said_what_is_left_out = True
            self._monitor.say(
                "info",
                "torch's operators measure tensors whose elements overlap, or have gaps of several sizes: "
                "that takes some ten times as long",
            )
        return left

    def _rows_of(self, target: Target) -> list[tuple[Target, Shown, Entry]]:
        tensor, other = target.tensor, target.other
        if target.shows == AGREEMENT:
            return [(target, (tensor, other, AGREEMENT, None, False), target.entry)]
        wants = self._wants(target)
        eps = wants.eps if wants.zeros else None
        if other is None or not isinstance(target.entry, Statistics):
            return [(target, (tensor, None, VALUES, eps, wants.std), target.entry)]
        ratio = Ratio(target.record[0])
        target.entry.norm = ratio.heard_change
        before = Numbers(ratio.deliver, (target.record[0], Kind.UPDATE_RATIO), target.entry.order)
        return [
            (target, (tensor, other, DIFFERENCE, eps, wants.std), target.entry),
            (target, (other, None, VALUES, None, False), before),
        ]

    # By torch's operators.

    def _by_operators(self, device: torch.device, group: Sequence[Target]) -> None:
        wants, factor = self._wants(group[0]), group[0].factor
        batch = Batch(device, wants)
        empty = [target for target in group if target.tensor.numel() == 0]
        if empty:
            table = torch.zeros((len(empty), COLUMNS), dtype=torch.float64, device=device)
            self._transfers.store(device, [target.entry for target in empty], table)
        full = [target for target in group if target.tensor.numel() > 0]
        is_gathered = gathering(group[0])[0] and len(full) > 1
        for some in portions(full, GATHERED) if is_gathered else ([full] if full else []):
            if is_gathered:
                bound = zero_bound(wants.eps, some[0].tensor.dtype, factor)
                tensors = [target.tensor for target in some]
                table = batch.measure_gathered(tensors, self._lengths(device, tensors), bound)
            else:
                table = batch.measure([values_of(target, wants) for target in some])
            if factor is not UNSCALED:
                table[:, :SCALED].mul_(factor)
            self._transfers.store(device, [target.entry for target in some], table)
            self._store_ratios(device, some, table)

    def _store_ratios(self, device: torch.device, targets: Sequence[Target], table: torch.Tensor) -> None:
        """For each change, its norm over the parameter's norm before."""
        changes = [(place, one, one.other) for place, one in enumerate(targets) if one.other is not None]
        if not changes:
            return
        before = Batch(device, _ONLY_NORM).measure(
            [Values(parts_of(was), one.tensor.numel(), 0.0) for _, one, was in changes]
        )
        ratios = table[[place for place, _, _ in changes], _NORM] / before[:, _NORM]
        entries = [recorded((one.record[0], Kind.UPDATE_RATIO, 0), 1, one.entry.order) for _, one, _ in changes]
        self.store_numbers(device, entries, [(ratio,) for ratio in ratios.unbind(0)])

    def _by_agreement(self, device: torch.device, group: Sequence[Target]) -> None:
        found = [(agreement(one.tensor, one.other),) for one in group if one.other is not None]
        self.store_numbers(device, [one.entry for one in group], found)

    def store_numbers(
        self, device: torch.device, entries: Sequence[Entry], values: Sequence[Sequence[torch.Tensor]]
    ) -> None:
        """Starts the copy of numbers that torch computed, tensors without dimensions, a row per entry."""
        nothing = torch.zeros((), dtype=torch.float64, device=device)
        cells = [cell for some in values for cell in (*some, *[nothing] * (COLUMNS - len(some)))]
        table = torch.stack([cell.reshape(()).double() for cell in cells]).view(len(values), COLUMNS)
        self._transfers.store(device, entries, table)

    def _wants(self, target: Target) -> Wants:
        """As the monitor requests now: the statistics may change while the run continues."""
        request = self._monitor.request(target.record[1])
        return _WITHOUT_CONFIG if request is None else Wants.of(*request[0], eps=request[1])

    def _lengths(self, device: torch.device, tensors: Sequence[torch.Tensor]) -> Lengths:
        sizes = tuple(tensor.numel() for tensor in tensors)
        # Created on one stream, it may not be ready for another.
        key = (device, self._transfers.streams(device).current(), sizes)
        lengths = self._layouts.get(key)
        if lengths is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            lengths = self._layouts[key] = Lengths(sizes, device)
        return lengths

    def _keep(self, targets: Sequence[Target]) -> None:
        for target in targets:
            streams = self._transfers.streams(target.tensor.device)
            for tensor in (target.tensor, target.other, target.factor):
                if isinstance(tensor, torch.Tensor) and tensor.device == target.tensor.device:
                    streams.keep(tensor)


def _is_alike(target: Target) -> bool:
    """Whether a tensor and the one it is compared with have the same layout in memory."""
    return target.other is None or target.tensor.stride() == target.other.stride()


def _grouped(targets: Sequence[Target], key: Callable[[Target], Key]) -> dict[Key, list[Target]]:
    groups: dict[Key, list[Target]] = {}
    for target in targets:
        groups.setdefault(key(target), []).append(target)
    return groups
