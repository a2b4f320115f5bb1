"""The framework of a training."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import Framework
from trainmon.frameworks.job import Job

if TYPE_CHECKING:
    import torch

#: Queried in this order; the last claims everything. Imported on use: none imports its framework.
_FRAMEWORKS = (
    ("trainmon.frameworks.deepspeed", "DeepSpeed"),
    ("trainmon.frameworks.megatron", "Megatron"),
    ("trainmon.frameworks.fsdp2", "Fsdp2"),
    ("trainmon.frameworks.fsdp1", "Fsdp1"),
    ("trainmon.frameworks.ddp", "Ddp"),
    ("trainmon.frameworks.plain", "Plain"),
)


def recognise(models: Sequence[torch.nn.Module], optimizer: Any) -> type[Framework]:
    """The framework of these models and this optimizer, by the classes of these objects, not by importable packages."""
    for module, name in _FRAMEWORKS:
        framework: type[Framework] = getattr(import_module(module), name)
        if framework.claims(models, optimizer):
            return framework
    raise AssertionError("the last framework claims everything")


__all__ = ["Framework", "Job", "recognise"]
