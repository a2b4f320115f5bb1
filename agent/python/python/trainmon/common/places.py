"""Whose code a stack's frame is: told by the directory that its file lies in."""

from __future__ import annotations

from pathlib import Path


def directory_of(file: str) -> str:
    """What the names of a module's file (`__file__`) and of all below its directory begin with.

    Frames name files as modules were found: a link on the way is not followed, and neither is it here. There is a slash
    at the end: a directory beside it may begin alike, as `torchvision` begins with `torch`.
    """
    return f"{Path(file).parent}/"


#: This package's own.
OURS = directory_of(str(Path(__file__).parent))
