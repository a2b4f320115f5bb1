"""Packages that cannot be where the environment lies, if a space is in its path, with or without a monitor.

msprobe reads no file in such a place, its own included: it cannot be imported. torch tells the compiler where its
libraries are without quoting that: nothing is compiled, neither inductor's code nor DeepSpeed's extensions.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

#: What msprobe takes.
_PLAIN = re.compile(r"[a-zA-Z0-9_.:/-]+")
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
#: Where they are, in the environment of all that is started; not set where nothing had to be done.
PLACE = "TRAINMON_TESTS_PACKAGES"


def is_plain(path: str | Path) -> bool:
    """Whether the others bear it."""
    return _PLAIN.fullmatch(str(path)) is not None


def bring_packages_to_one() -> None:
    """This process, and all that it starts, find torch through a link, and a copy of msprobe, which follows links."""
    torch, msprobe = _place_of("torch"), _place_of("msprobe")
    wanted = [one for one in (torch, msprobe and Path(os.path.realpath(msprobe))) if one and not is_plain(one)]
    if not wanted or not is_plain(tempfile.gettempdir()):
        return
    made = tempfile.mkdtemp(prefix="trainmon-tests-")
    # So that whoever reads a stack knows whose frames they are.
    place = Path(made, "site-packages")
    place.mkdir()
    if torch:
        (place / "torch").symlink_to(torch)
    if msprobe:
        shutil.copytree(msprobe, place / "msprobe", ignore=shutil.ignore_patterns("__pycache__"))
    if not is_plain(os.environ.get(_CACHE, "plain")):
        os.environ[_CACHE] = str(Path(made, "inductor"))
    os.environ[PLACE] = str(place)
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    os.environ["PYTHONPATH"] = os.pathsep.join([*others, str(place)])
    # As Python would have found them at its start: before what is installed.
    sys.path.insert(1 + len(others), str(place))
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            for directory in (made, f"{sys.pycache_prefix}{made}"):
                shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


def _place_of(package: str) -> Path | None:
    spec = PathFinder.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
