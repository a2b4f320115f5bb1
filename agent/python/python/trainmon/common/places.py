"""The owner of a stack frame's code, by the directory of its file."""

from __future__ import annotations

from pathlib import Path


def directory_of(file: str) -> str:
    """The common prefix of a module's file (`__file__`) and of all files below its directory.

    Frames name files as modules were found: links are not resolved, here either. The slash at the end excludes
    directories whose name begins alike, as `torchvision` begins with `torch`.
    """
    return f"{Path(file).parent}/"


#: This package's directory.
OURS = directory_of(str(Path(__file__).parent))
