"""Messages to the user: through `logging` if the script has configured it, else on standard error."""

from __future__ import annotations

import logging
import sys

from trainmon._trainmon import printable
from trainmon.common.settings import is_on

_LOGGER = logging.getLogger("trainmon")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


def route(severity: str, message: str, hint: str | None) -> bool:
    """Passes a notice to the logger `trainmon`, from any thread. False if neither it nor the root logger has a handler:
    then the script has not configured logging. Also False if the logger is disabled, which `logging.config` does by
    default to every logger that its config does not name."""
    if _LOGGER.disabled or not _LOGGER.hasHandlers():
        return False
    _LOGGER.log(_LEVELS.get(severity, logging.WARNING), "%s", _lines(message, hint))
    return True


def say(message: str, hint: str | None = None) -> None:
    """Prints a warning without a monitor. Never raises."""
    tell("warning", message, hint)


def tell(severity: str, message: str, hint: str | None = None) -> None:
    """Prints a warning or an information without a monitor; `TRAINMON_QUIET=1` suppresses the latter. Never raises."""
    if severity == "info" and is_on("TRAINMON_QUIET"):
        return
    try:
        if not route(severity, message, hint):
            kind = "" if severity == "info" else "warning: "
            sys.stderr.write(f"trainmon: {kind}{_lines(message, hint)}\n")
    except Exception:
        # The stream has no reader any more.
        return


def warn_only(severity: str, message: str, hint: str | None = None) -> None:
    """As `tell`, for warnings only."""
    if severity != "info":
        tell(severity, message, hint)


def _lines(message: str, hint: str | None) -> str:
    message = printable(message)
    return message if hint is None else f"{message}\n  hint: {hint}"
