"""A watch as the parts of the kit need it: on the device's way, everything heard, its files read."""

from __future__ import annotations

import contextlib
import csv
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_kit.setting import Setting

OPS = ("min", "max", "mean", "norm", "std", "nans", "infs", "zeros")

#: Below which magnitude an element counts as zero.
EPS = 1e-8

EVERYTHING: dict[str, Any] = {
    "ops": list(OPS),
    "eps": EPS,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "mg_direction": True,
    "update": True,
    "format": "csv",
    # These steps take next to no time: a shorter queue may drop some.
    "queue_steps": 1000,
}

Row = dict[str, str]


@dataclass(slots=True)
class Watching:
    """A watch under way, and then what it left."""

    place: Path
    warnings: list[str] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    watch: Any = None

    def rows(self, kind: str) -> list[Row]:
        """The rows of a kind; none where it has no file."""
        return rows_of(self.place, kind)

    @property
    def complaint(self) -> str:
        """What went wrong in the monitor itself; empty if nothing did."""
        lost = self.counts.get("not_sampled", 0) + self.counts.get("dropped", 0)
        said = [f"{lost} readings are missing"] if lost else []
        return "; ".join([*said, *self.warnings])

    @property
    def failures(self) -> str:
        """What failed in the monitor itself, where some readings are missing by intent; empty if nothing did."""
        return "; ".join(one for one in self.warnings if "failed" in one or "report this" in one)


def start_monitor(place: Path, **config: Any) -> Any:
    """A monitor that writes below `place`, with every statistic of everything unless the config says otherwise."""
    from trainmon.watches import startup

    return startup.start_monitor({**EVERYTHING, **config}, output_dir=str(place), rank=0, quiet=True)


@contextlib.contextmanager
def watched(setting: Setting, net: Any, optimizer: Any, place: str, **config: Any) -> Iterator[Watching]:
    """Watches the training inside; in the dry form tensors of the host go the device's way, too."""
    from trainmon import Watch

    found = Watching(setting.scratch / place)
    with heard(found.warnings):
        monitor = start_monitor(found.place, **config)
        try:
            found.watch = Watch(net, optimizer, monitor, device_only=not setting.is_cuda)
            with found.watch:
                yield found
        finally:
            monitor.shutdown()
            found.counts = dict(monitor.counts())


class _Ear(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


@contextlib.contextmanager
def heard(said: list[str]) -> Iterator[None]:
    """Appends what trainmon warns of: it raises nothing into a training, whatever happens."""
    logger, ear = logging.getLogger("trainmon"), _Ear(said)
    logger.addHandler(ear)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(ear)


def rows_of(place: Path, kind: str) -> list[Row]:
    """The rows of the one run below `place`."""
    found: list[Row] = []
    for directory in place.glob("*/rank_0"):
        if directory.parent.is_symlink():
            # It leads to the newest run, which is found under its own name.
            continue
        for file in sorted(directory.glob(f"{kind}_[0-9]*.csv")):
            with file.open(newline="", encoding="utf-8") as opened:
                found += list(csv.DictReader(opened))
    return found


def steps_of(place: Path) -> list[Row]:
    """The lines of `steps.csv`."""
    found: list[Row] = []
    for file in place.glob("*/rank_0/steps.csv"):
        if not file.parents[1].is_symlink():
            with file.open(newline="", encoding="utf-8") as opened:
                found += list(csv.DictReader(opened))
    return found
