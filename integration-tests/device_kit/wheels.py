"""The wheels in the kit, unpacked: a bare machine has no pip that could install them."""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Where packages are looked for besides where the machine has them."""

    first: tuple[Path, ...] = ()
    """Before the machine's own: the wheel that is tried."""
    last: tuple[Path, ...] = ()
    """After them: what only stands in for what the machine lacks."""

    def python_path(self, own: Path, given: str | None) -> str:
        """The PYTHONPATH of a part: what is looked for first, this package, and what the caller had."""
        return os.pathsep.join(filter(None, [*map(str, self.first), str(own), given]))


def unpack(wheels: Path, target: Path) -> Places:
    """Unpacks the wheels of a kit below `target`; without any, what Python finds by itself is used."""
    ours, others = sorted(wheels.glob("*.whl")), sorted((wheels / "other").glob("*.whl"))
    return Places(_unpacked(ours, target / "ours"), _unpacked(others, target / "others"))


def _unpacked(wheels: list[Path], target: Path) -> tuple[Path, ...]:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                place = _place_of(name)
                if place is not None and not name.endswith("/"):
                    file = target / place
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(archive.read(name))
    return (target,) if wheels else ()


def _place_of(name: str) -> str | None:
    """Where a wheel's file belongs beside the packages; None for scripts and headers, and for what leads elsewhere."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        return None
    data = re.match(r"[^/]+\.data/([^/]+)/(.+)", name)
    if data is None:
        return name
    return data[2] if data[1] in ("purelib", "platlib") else None
