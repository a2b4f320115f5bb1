"""The modules of a model whose hooks run: those that are neither inside a compiled nor inside a scripted module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from trainmon.common.names import child, clean_name, listed, msprobes_names, own_names, wrapped_by
from trainmon.common.settings import Settings

if TYPE_CHECKING:
    from trainmon._trainmon import Monitor

#: The number of modules named in a message.
_NAMED = 3


def eager_modules(
    model: torch.nn.Module, monitor: Monitor, settings: Settings
) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """`(clean name, name in the output, module)` of a model and everything in it that runs eagerly, children first
    named as in `named_modules`. Of a wrapper and its module only the latter, except with msprobe's names. Logs which
    modules are skipped because they are compiled or scripted."""
    naming = msprobes_names if settings.like_msprobe else own_names(model)
    compiled: list[str] = []
    scripted: list[str] = []
    passed_over: list[str] = []
    for name, module in model.named_modules():
        if any(not prefix or name == prefix or name.startswith(prefix + ".") for prefix in passed_over):
            continue
        shown = clean_name(name) or type(module).__name__
        if getattr(module, "_compiled_call_impl", None) is not None:
            compiled.append(shown)
            passed_over.append(name)
            continue
        if child(module, "_orig_mod") is not None:
            # `torch.compile(module)`: its own hooks run eagerly, those inside do not.
            compiled.append(shown)
            passed_over.append(f"{name}._orig_mod" if name else "_orig_mod")
        elif isinstance(module, torch.jit.ScriptModule) and next(module.children(), None) is not None:
            scripted.append(shown)
            passed_over.extend(f"{name}.{inner}" if name else inner for inner, _ in module.named_children())
        if type(module).__name__ == "FullyShardedDataParallel" or (not settings.like_msprobe and _only_wraps(module)):
            continue
        clean = clean_name(name + ".").rstrip(".")
        yield clean, naming(clean), module
    _say(
        monitor,
        "compiled",
        compiled,
        "inputs and outputs of a module that torch.compile wraps are measured",
    )
    _say(monitor, "scripted", scripted, "inputs and outputs of the scripted module itself are measured")


def _say(monitor: Monitor, kind: str, names: list[str], what_is: str) -> None:
    if names:
        monitor.say(
            "info",
            f"activations inside {kind} modules are not measured: {listed(names, _NAMED)}",
            f"{what_is}; gradients, moments and parameters are measured everywhere",
        )


def _only_wraps(module: torch.nn.Module) -> bool:
    return wrapped_by(module) is not None or child(module, "_checkpoint_wrapped_module") is not None
