"""The names that programs import from msprobe."""

from __future__ import annotations

from trainmon import PrecisionDebugger, TrainerMon, module_dump, module_dump_end, random_save, seed_all
from trainmon import save_tensor as acl_save
from trainmon.as_msprobe import AclGraphDumper, set_fx_dump_config, set_ge_dump_config

__all__ = [
    "AclGraphDumper",
    "PrecisionDebugger",
    "TrainerMon",
    "acl_save",
    "module_dump",
    "module_dump_end",
    "random_save",
    "seed_all",
    "set_fx_dump_config",
    "set_ge_dump_config",
]
