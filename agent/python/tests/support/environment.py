"""The environment that programs of the tests start in. Imported before anything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support import plain_paths

# Packages come without bytecode, and where none may be written each of the many processes would compile torch anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Unbuffered, `print` writes a line and its end apart, and between them comes what another rank of a job writes.
os.environ.pop("PYTHONUNBUFFERED", None)
_TARGET = Path(__file__).resolve().parents[4] / "target"
sys.dont_write_bytecode = False
sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(_TARGET / "python" / "bytecode"))

# The tests' own process, and not each that it starts: those are told.
if "pytest" in sys.modules:
    plain_paths.bring_packages_to_one()

#: The variables before any library was imported: some set variables that change how torch finds its devices.
ENVIRONMENT = dict(os.environ)


def modules_in(*places: str | Path) -> str:
    """`PYTHONPATH` for a program that is to find modules here, too. Behind them stands this one's own variable: without
    it another `trainmon` than the one that is tested might be found."""
    others = ENVIRONMENT.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*map(str, places), *filter(None, others)])


#: Packages with the names of engines that are too large to be here.
STANDINS = Path(__file__).resolve().parent / "standins"
