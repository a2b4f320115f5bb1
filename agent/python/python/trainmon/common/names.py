"""The names of parameters and modules in the output.

A name is that of the user's own model, without the parts that wrapper classes add, wherever they are. So the same model
has the same names alone, under DDP, sharded, compiled and in a trainer.

msprobe keeps the attribute `module` of DDP, DeepSpeed and Megatron in its names: these are used with its import
(`TrainerMon`, `TrainerMonitorV2`) and its V2 layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Wrappers' attributes whose names no model uses: the names alone identify them.
_MARKS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")

#: Wrappers whose attribute a model may use too: by package and class, including subclasses.
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

#: From a model's name without wrappers' marks to the name in the output.
Naming = Callable[[str], str]


def clean_name(name: str) -> str:
    """A name without the parts that FSDP, activation checkpointing and torch.compile add, as in msprobe. Halves of
    surrogate pairs, which no file can hold, are escaped."""
    for mark in _MARKS:
        if mark in name:
            name = name.replace(mark, "")
    return name if name.isascii() else writable(name)


def writable(text: str) -> str:
    """The text with halves of surrogate pairs escaped: UTF-8 has none."""
    return text.encode("utf-8", "backslashreplace").decode()


def own_names(model: torch.nn.Module) -> Naming:
    """A function that removes every wrapper's attribute from a `clean_name` of this model's parameters and modules."""
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
    """The name, unchanged."""
    return name


def namings(models: Sequence[torch.nn.Module], *, like_msprobe: bool) -> list[Naming]:
    """One for each model chunk."""
    return [msprobes_names if like_msprobe else own_names(model) for model in models]


def wrapped_by(module: torch.nn.Module) -> str | None:
    """The attribute in which a wrapper holds its module; None for a module that is no wrapper, and for those that have
    marks of their own."""
    for one in type(module).__mro__:
        attribute = _WRAPPERS.get(one.__module__.partition(".")[0], {}).get(one.__name__)
        if attribute is not None and child(module, attribute) is not None:
            return attribute
    return None


def child(module: torch.nn.Module, name: str) -> torch.nn.Module | None:
    """A module's own child of a name. The children of a scripted module are not in a dictionary."""
    children = module._modules
    return children[name] if name in children else None  # noqa: SIM401 - it has no `get`


def listed(names: Sequence[object], most: int) -> str:
    """The first names or numbers, and the number of further ones: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"
