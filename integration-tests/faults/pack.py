"""`python -m faults.pack OUT corpus.tar.gz`: what `python -m faults` made, as one small file.

The same dumps give the same bytes.
Golden dumps of several cases are in it once; a case's `golden` is a link. Paths of the machine are made neutral.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .held_out.cases import CASES as HELD_OUT
from .held_out_tensor.cases import CASES as HELD_OUT_TENSOR
from .machines.cases import CASES as MACHINES
from .make import GOLDENS
from .plants import CASES

PLACES = (
    (sysconfig.get_paths()["purelib"], "/venv/lib/python/site-packages"),
    (str(Path(sysconfig.get_paths()["purelib"]).resolve()), "/venv/lib/python/site-packages"),
    *(
        (str(place), "/venv/lib/python/site-packages")
        for place in Path(sys.prefix).parent.glob("*/lib/python*/site-packages")
    ),
    (sysconfig.get_paths()["stdlib"], "/usr/lib/python"),
    # As frames name it: found through a link, or not.
    (str(Path(__file__).parent.parent), "/training"),
    (str(Path(__file__).resolve().parent.parent), "/training"),
)
"""What stack frames may name, and what they name in the corpus."""

ELSEWHERE = re.compile(r'File (?!/venv/|/usr/lib/python/|/training/)([^"]+?), line')
"""A frame of any other file, whose path may have spaces."""


class ForeignPathError(Exception):
    """A stack frame of a place that is not known to be neutral."""

    def __init__(self, file: Path, frame: str) -> None:
        super().__init__(f"{file}: a stack frame in {frame}, expected one of {[place for place, _ in PLACES]}")


def neutral(file: Path, out: Path) -> bytes:
    """A file's content without the machine's paths."""
    if file.suffix != ".json":
        return file.read_bytes()
    text = file.read_text()
    if file.name == "dump.json":
        # A loaded and dumped file would have other numbers: only the one line is replaced.
        place = json.loads(text)["dump_data_dir"]
        if place:
            text = text.replace(json.dumps(place), json.dumps("/dump/" + str(Path(place).relative_to(out))), 1)
    for machine, name in PLACES:
        text = text.replace(machine + "/", name + "/")
    if found := ELSEWHERE.search(text):
        raise ForeignPathError(file, found[1])
    return text.encode()


def pack(out: Path, corpus: Path) -> int:
    """Writes the archive. Returns its size in bytes."""
    with (
        corpus.open("wb") as file,
        _compressed(corpus, file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        first: dict[bytes, str] = {}
        for root in sorted(_kept(out)):
            for path in sorted(root.rglob("*")):
                if path.is_symlink() or path.is_file():
                    _add(archive, path, out, first)
    return corpus.stat().st_size


@contextmanager
def _compressed(corpus: Path, file: BinaryIO) -> Iterator[BinaryIO | gzip.GzipFile]:
    """With gzip, or as `.zst` by the program zstd, which sees that files far apart are alike: a third of the size."""
    if corpus.suffix != ".zst":
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            yield packed
        return
    whole = io.BytesIO()
    yield whole
    subprocess.run(
        ["zstd", "-q", "-19", "--long=27", "--single-thread", "-c"], input=whole.getvalue(), stdout=file, check=True
    )


def _kept(out: Path) -> set[Path]:
    """The directories of the cases that the corpus has, and of their golden dumps."""
    homes = [
        out / case.name
        for case in (*CASES, *HELD_OUT, *HELD_OUT_TENSOR, *MACHINES)
        if case.kept and (out / case.name).is_dir()
    ]
    return {*homes, *(out / GOLDENS / (home / "golden").readlink().name for home in homes)}


def _add(archive: tarfile.TarFile, path: Path, out: Path, first: dict[bytes, str]) -> None:
    """What is the same as an earlier file, as many stacks are, becomes a link to it."""
    entry = tarfile.TarInfo(str(path.relative_to(out)))
    entry.mode = 0o644
    if path.is_symlink():
        entry.type = tarfile.SYMTYPE
        entry.linkname = str(path.readlink())
        archive.addfile(entry)
        return
    content = neutral(path, out)
    if (before := first.setdefault(hashlib.sha256(content).digest(), entry.name)) != entry.name:
        entry.type = tarfile.LNKTYPE
        entry.linkname = before
        archive.addfile(entry)
        return
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.pack")
    parser.add_argument("out", type=Path, help="what `python -m faults` was given")
    parser.add_argument("corpus", type=Path)
    arguments = parser.parse_args()
    size = pack(arguments.out.resolve(), arguments.corpus)
    print(f"{arguments.corpus}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
