"""What is said to the user: through `logging` where the script has set that up, on standard error where not."""

from __future__ import annotations

import logging
import sys

from trainmon._trainmon import printable
from trainmon.common.settings import is_on

_LOGGER = logging.getLogger("trainmon")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


def route(severity: str, message: str, hint: str | None) -> bool:
    """Hands a notice to the logger `trainmon`, from any thread. False if neither it nor the root logger has a handler:
    then nobody has said where such things go. So too if the logger is disabled, which `logging.config` does by default
    to every logger that its config does not name, and nobody meant us."""
    if _LOGGER.disabled or not _LOGGER.hasHandlers():
        return False
    _LOGGER.log(_LEVELS.get(severity, logging.WARNING), "%s", _lines(message, hint))
    return True


def say(message: str, hint: str | None = None) -> None:
    """A warning, where there is no monitor to say it. Never raises."""
    tell("warning", message, hint)


def tell(severity: str, message: str, hint: str | None = None) -> None:
    """What there is to say where there is no monitor to say it: a warning, or something that is good to know, which
    `TRAINMON_QUIET=1` leaves out. Never raises."""
    if severity == "info" and is_on("TRAINMON_QUIET"):
        return
    try:
        if not route(severity, message, hint):
            kind = "" if severity == "info" else "warning: "
            sys.stderr.write(f"trainmon: {kind}{_lines(message, hint)}\n")
    except Exception:
        # Nobody reads it any more.
        return


def warn_only(severity: str, message: str, hint: str | None = None) -> None:
    """As `tell`, without what is only good to know."""
    if severity != "info":
        tell(severity, message, hint)


def _lines(message: str, hint: str | None) -> str:
    message = printable(message)
    return message if hint is None else f"{message}\n  hint: {hint}"
