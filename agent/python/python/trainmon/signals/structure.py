"""`print_struct`: writes the inputs and outputs of every module once, then ends the training as requested.

The only place where the monitor ends a training: a config with `print_struct` requests the file and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon._trainmon import Monitor
from trainmon.common.guard import Guard
from trainmon.common.output_paths import run_directory, write_whole
from trainmon.common.settings import Settings
from trainmon.hooks.torch_hooks import Hook
from trainmon.signals.eager_modules import eager_modules
from trainmon.signals.modules import works_in_place

Struct = dict[str, Any]


class ModuleStructPrinted(Exception):  # noqa: N818 - not an error: what the config asked for is done
    """Ends the training after `module_struct.json` is written."""

    def __init__(self) -> None:
        super().__init__("exit after first monitor step when print model struct")


#: The conversion of a tensor at a module's border.
Crossing = Callable[[torch.Tensor], torch.Tensor]


def _itself(value: torch.Tensor) -> torch.Tensor:
    """For a module that overwrites its input: an earlier hook stays where the gradient of the old values passes, and
    one on a view would be lost."""
    return value


def _renamed(value: torch.Tensor) -> torch.Tensor:
    """For other modules: the tensor's gradients from other users are not the module's."""
    return value.view_as(value)


class _Gradients:
    """The gradients of one end of a module's latest call."""

    def __init__(self, count: int) -> None:
        self._arrived: list[Any] = [None] * count
        self.is_reached = False

    def watch(self, index: int, value: Any, crossing: Crossing) -> Any:
        """The value at the module's border, with its gradient recorded for this position."""
        if not isinstance(value, torch.Tensor) or not value.requires_grad or not torch.is_grad_enabled():
            return value

        def arrived(gradient: torch.Tensor) -> None:
            # The description is kept; the gradient itself is released.
            self._arrived[index] = _tensor(gradient)
            self.is_reached = True

        crossed = crossing(value)
        crossed.register_hook(arrived)
        return crossed

    def struct(self) -> Struct:
        """As a tuple, with None for a missing gradient."""
        struct: Struct = {"config": f"tuple[{len(self._arrived)}]"}
        for index, found in enumerate(self._arrived):
            struct[str(index)] = found if found is not None else str(type(None))
        return struct


class Structure:
    """Records every module's inputs, outputs and their gradients until the first optimizer step."""

    def __init__(self, monitor: Monitor, guard: Guard, settings: Settings) -> None:
        self._monitor = monitor
        self._guard = guard
        self._settings = settings
        ranks = settings.ranks
        self._is_asked_for = settings.print_struct and (not ranks or monitor.rank in ranks)
        self._modules: dict[str, Struct] = {}
        self._gradients: dict[str, tuple[_Gradients, _Gradients]] = {}
        self._handles: list[RemovableHandle] = []
        self._is_printed = False

    def attach(self, models: Sequence[torch.nn.Module]) -> None:
        """Hooks every module, if the config requests it."""
        if not self._is_asked_for:
            return
        for vpp_stage, model in enumerate(models):
            for _, name, module in eager_modules(model, self._monitor, self._settings):
                entering, left = self._hooks(f"{vpp_stage}:{name}", works_in_place(module))
                self._handles.append(torch.nn.Module.register_forward_pre_hook(module, Hook(entering)))
                self._handles.append(torch.nn.Module.register_forward_hook(module, Hook(left), with_kwargs=True))

    def _hooks(self, name: str, is_in_place: bool) -> tuple[Any, Any]:
        """The hooks before and after a module. Both give their tensors new nodes in the graph: a gradient must be the
        one that crosses the module's border, not what the tensor receives inside and elsewhere. No step is made with
        these gradients. Outputs are copied: a receiver may overwrite one, and a hook on a view is lost then."""
        crossing = _itself if is_in_place else _renamed

        def entering(module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
            if not module.training:
                return None
            ends = _Gradients(len(args)), _Gradients(0)
            self._gradients[name] = ends
            return tuple(ends[0].watch(index, one, crossing) for index, one in enumerate(args))

        def left(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            return self._left(name, args, kwargs, output) if module.training else None

        return self._guard.at("print_struct", name, entering), self._guard.at("print_struct", name, left)

    def _left(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        # A module that is called again has its latest position.
        self._modules.pop(name, None)
        self._modules[name] = {"input": struct_of(inputs), "output": struct_of(output)}
        is_one = not isinstance(output, list | tuple)
        outputs = [output] if is_one else list(output)
        gradients = _Gradients(len(outputs))
        self._gradients[name] = (self._gradients[name][0], gradients)
        crossed = [gradients.watch(index, one, torch.clone) for index, one in enumerate(outputs)]
        if is_one:
            return crossed[0]
        # A named tuple has a constructor of its own: it keeps its tensors.
        return type(output)(crossed) if type(output) in (list, tuple) else None

    def before_step(self) -> None:
        """Writes the file at the first optimizer step. The caller then checks `is_printed`."""
        if not self._modules or self._is_printed:
            return
        directory = run_directory(self._monitor)
        if directory is None:
            self._monitor.say("warning", "`print_struct`: no CSV output is configured, so its file cannot be written")
            self.detach()
            return
        file = directory.parent / "module_struct" / f"rank{self._monitor.rank}" / "module_struct.json"
        for name, (inputs, outputs) in self._gradients.items():
            if outputs.is_reached:
                self._modules[name]["input_grad"] = inputs.struct()
                self._modules[name]["output_grad"] = outputs.struct()
        write_whole(file, lambda opened: json.dump(self._modules, opened, indent=2))
        self.detach()
        self._is_printed = True
        self._monitor.say("info", f"`print_struct`: wrote {file}; the training ends now")

    @property
    def is_printed(self) -> bool:
        """Whether the training must end: the file is written."""
        return self._is_printed

    def detach(self) -> None:
        """Removes the hooks."""
        while self._handles:
            self._handles.pop().remove()


def struct_of(value: Any) -> Struct:
    """A value's description, in msprobe's format."""
    if isinstance(value, torch.Tensor):
        return {"config": "tensor", "tensor": _tensor(value)}
    if isinstance(value, list | tuple):
        struct: Struct = {"config": f"{type(value).__name__}[{len(value)}]"}
        for index, one in enumerate(value):
            struct[str(index)] = _tensor(one) if isinstance(one, torch.Tensor) else str(type(one))
        return struct
    return {"config": str(type(value))}


def _tensor(tensor: torch.Tensor) -> str:
    return f"size={tuple(tensor.shape)}, dtype={tensor.dtype}"
