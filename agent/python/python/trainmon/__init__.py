"""trainmon: a training monitor that lives inside the process.

`TrainerMon` takes msprobe's place; `watch` is the same for everybody else. Neither imports torch before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import ConfigError, __version__

if TYPE_CHECKING:
    from trainmon.captures.debugger import PrecisionDebugger
    from trainmon.captures.seeding import seed_all
    from trainmon.starting import watch
    from trainmon.trainer import TrainerMon
    from trainmon.trainer_v2 import TrainerMonitorV2
    from trainmon.watching import Watch

__all__ = ["ConfigError", "PrecisionDebugger", "TrainerMon", "TrainerMonitorV2", "Watch", "__version__", "seed_all", "watch"]

#: Where the names are that need torch.
_LAZY = {
    "PrecisionDebugger": "trainmon.captures.debugger",
    "TrainerMon": "trainmon.trainer",
    "TrainerMonitorV2": "trainmon.trainer_v2",
    "Watch": "trainmon.watching",
    "seed_all": "trainmon.captures.seeding",
    "watch": "trainmon.starting",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module `trainmon` has no attribute `{name}`")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
