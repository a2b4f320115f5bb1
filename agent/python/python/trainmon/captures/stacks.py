"""The stack of a captured call, as text."""

from __future__ import annotations

import linecache
from types import CodeType, FrameType

from trainmon.common.places import OURS

#: Code that replaces a function of torch while a capture is on: frames further in belong to the function itself.
entrances: set[CodeType] = set()

#: Code that replaces a function without an entry of its own: frames further in were called there.
stand_ins: set[CodeType] = set()


def lines_of(frame: FrameType) -> list[str]:
    r"""The frames from this one outwards, each as `File <path>, line <n>, in <function>, \n <source line>`."""
    found: list[str] = []
    outer: FrameType | None = frame
    while outer is not None:
        code = outer.f_code
        if code in entrances:
            # The call came from outside of it: earlier inner frames are the function's own.
            found.clear()
        elif code not in stand_ins and not code.co_filename.startswith(OURS):
            number = outer.f_lineno
            source = linecache.getline(code.co_filename, number, outer.f_globals).strip()
            found.append(f"File {code.co_filename}, line {number}, in {code.co_name}, \n {source}")
        outer = outer.f_back
    return found
