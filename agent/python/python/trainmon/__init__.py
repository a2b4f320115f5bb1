"""trainmon: a training monitor that runs inside the training process.

`TrainerMon` and `PrecisionDebugger` replace msprobe's classes; `watch` and `capture` are the native interface. No name
imports torch before it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import ConfigError, __version__

if TYPE_CHECKING:
    from trainmon.captures.capture_block import Capturing, capture
    from trainmon.captures.debugger import PrecisionDebugger, module_dump, module_dump_end
    from trainmon.captures.random_calls import RandomCalls, random_save
    from trainmon.captures.saved_values import SingleSave, save_tensor
    from trainmon.captures.seeds import seed_all
    from trainmon.msprobe.trainer import TrainerMon
    from trainmon.msprobe.trainer_v2 import TrainerMonitorV2
    from trainmon.watches.startup import watch
    from trainmon.watches.watch import Watch

__all__ = [
    "Capturing",
    "ConfigError",
    "PrecisionDebugger",
    "RandomCalls",
    "SingleSave",
    "TrainerMon",
    "TrainerMonitorV2",
    "Watch",
    "__version__",
    "capture",
    "module_dump",
    "module_dump_end",
    "random_save",
    "save_tensor",
    "seed_all",
    "watch",
]

#: The modules of the names that require torch.
_LAZY = {
    "Capturing": "trainmon.captures.capture_block",
    "PrecisionDebugger": "trainmon.captures.debugger",
    "RandomCalls": "trainmon.captures.random_calls",
    "SingleSave": "trainmon.captures.saved_values",
    "TrainerMon": "trainmon.msprobe.trainer",
    "TrainerMonitorV2": "trainmon.msprobe.trainer_v2",
    "Watch": "trainmon.watches.watch",
    "capture": "trainmon.captures.capture_block",
    "module_dump": "trainmon.captures.debugger",
    "module_dump_end": "trainmon.captures.debugger",
    "random_save": "trainmon.captures.random_calls",
    "save_tensor": "trainmon.captures.saved_values",
    "seed_all": "trainmon.captures.seeds",
    "watch": "trainmon.watches.startup",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module `trainmon` has no attribute `{name}`")
    try:
        value = getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        message = f"`trainmon.{name}` requires PyTorch, and this Python has no module `torch`: {sys.executable}"
        raise ModuleNotFoundError(message, name="torch") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
