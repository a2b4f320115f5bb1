"""What parameters and modules are called in the output.

A name is the one that the user's own model gives: what a class that only wraps a module puts before or into it is left
out, wherever it stands. So the same model has the same names alone, under DDP, sharded, compiled and in a trainer.

msprobe keeps the attribute `module` of DDP, DeepSpeed and Megatron in its names: they are the ones shown where its
import (`TrainerMon`, `TrainerMonitorV2`) or its V2 layout is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Attributes by which wrappers hold the module, of names no model uses: they are told by their names alone.
_MARKS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")

#: Wrappers whose attribute a model may use too: by package and class, subclasses with them.
_WRAPPERS = {
    "torch": {"DistributedDataParallel": "module", "DataParallel": "module"},
    "deepspeed": {"DeepSpeedEngine": "module"},
    "megatron": {
        "_BaseDataParallel": "module",
        "DistributedDataParallelBase": "module",
        "DistributedDataParallel": "module",
        "Float16Module": "module",
    },
    "apex": {"DistributedDataParallel": "module"},
    "lightning": {"_FabricModule": "_forward_module", "_LightningModuleWrapperBase": "_forward_module"},
}
_WRAPPERS["lightning_fabric"] = _WRAPPERS["pytorch_lightning"] = _WRAPPERS["lightning"]

#: From the name a model gives, without wrappers' marks, to the one that is shown.
Naming = Callable[[str], str]


def clean_name(name: str) -> str:
    """A name without what FSDP, activation checkpointing and torch.compile put into it. As msprobe has it. Halves of
    surrogate pairs, which no file can hold, are spelled out."""
    for mark in _MARKS:
        if mark in name:
            name = name.replace(mark, "")
    return name if name.isascii() else writable(name)


def writable(text: str) -> str:
    """The text with halves of surrogate pairs spelled out: no UTF-8 has them."""
    return text.encode("utf-8", "backslashreplace").decode()


def own_names(model: torch.nn.Module) -> Naming:
    """Leaves every wrapper's attribute out of a `clean_name` of this model's parameters and modules."""
    left_out = {
        clean_name(f"{path}.{attribute}".lstrip("."))
        for path, module in model.named_modules()
        if (attribute := wrapped_by(module)) is not None
    }
    if not left_out:
        return msprobes_names

    def naming(name: str) -> str:
        parts, path = [], ""
        for part in name.split("."):
            path = f"{path}.{part}" if path else part
            if path not in left_out:
                parts.append(part)
        return ".".join(parts)

    return naming


def msprobes_names(name: str) -> str:
    """The name as it is."""
    return name


def namings(models: Sequence[torch.nn.Module], *, like_msprobe: bool) -> list[Naming]:
    """One for each model chunk."""
    return [msprobes_names if like_msprobe else own_names(model) for model in models]


def wrapped_by(module: torch.nn.Module) -> str | None:
    """The attribute by which a wrapper holds its module; None for a module that is no wrapper, and for those that have
    marks of their own."""
    for one in type(module).__mro__:
        attribute = _WRAPPERS.get(one.__module__.partition(".")[0], {}).get(one.__name__)
        if attribute is not None and child(module, attribute) is not None:
            return attribute
    return None


def child(module: torch.nn.Module, name: str) -> torch.nn.Module | None:
    """A module's own child of a name. What holds the children of a scripted module is no dictionary."""
    children = module._modules
    return children[name] if name in children else None  # noqa: SIM401 - it has no `get`


def listed(names: Sequence[object], most: int) -> str:
    """The first names or numbers, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"
