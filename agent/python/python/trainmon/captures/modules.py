"""Modules: their calls, their gradients and those of their parameters, recorded by hooks that exist while a capture
does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon._trainmon import BackwardPass, Capture, ModuleCall
from trainmon.captures.compiled import NOTE
from trainmon.captures.neutral import NeutralPass, NeutralPasses
from trainmon.captures.suspension import StackMode, nothing, undo_all
from trainmon.common.names import child
from trainmon.hooks.replacement import replace
from trainmon.hooks.torch_hooks import Hook, is_compiling


class _Call:
    """A module's call in progress in a thread."""

    __slots__ = ("backward", "call", "has_pushed", "module", "outer_error")

    def __init__(self, module: torch.nn.Module, call: ModuleCall | None, has_pushed: bool) -> None:
        self.module = module
        self.call = call
        self.has_pushed = has_pushed
        self.backward: BackwardPass | NeutralPass | None = None
        self.outer_error = sys.exc_info()[1]


class _Calls(threading.local):
    def __init__(self) -> None:
        self.open: list[_Call] = []


class ModuleHooks:
    """Hooks on every module of the models."""

    def __init__(
        self,
        capture: Capture,
        mode: StackMode | None,
        *,
        records: bool,
        wants_backward: bool,
        neutral: bool,
        before_call: Callable[[], None] | None = None,
    ) -> None:
        """`mode` is activated in threads without it while a module is called there; without `records` the hooks do only
        that. `neutral`: the graph is not changed. `before_call` is called before a module's call is recorded."""
        self._capture = capture
        self._mode = mode
        self._records = records
        self._wants_backward = wants_backward
        self._before_call = before_call
        self._handles: list[RemovableHandle] = []
        self._neutral = NeutralPasses(self._handles) if neutral else None
        self._undo: list[Callable[[], object]] = []
        self._hooked: list[tuple[torch.nn.Module, Hook, Hook]] = []
        #: By module, the hooks for the begin and the end of a call.
        self._entering: dict[int, RemovableHandle] = {}
        self._leaving: dict[int, RemovableHandle] = {}
        #: Threads in which the mode is active, and the module they are in.
        self._pushed: list[tuple[int, int]] = []
        self._is_detached = False
        self._calls = _Calls()
        #: By parameter, its names in the modules that were called.
        self._parameters: dict[int, list[tuple[str, str]]] = {}

    def attach(self, model: torch.nn.Module, prefix: str) -> None:
        """Hooks a model's modules. `prefix` is put before their paths. The model itself has no entry, as in msprobe,
        but its calls in another thread are seen."""
        if self._mode is not None and not is_compiled(model):
            self.attach_one(model, "")
        for name, module in named_modules(model):
            path = f"{prefix}{name}." if name else prefix
            self.attach_one(module, f"Module.{path}{type(module).__name__}")

    def attach_one(self, module: torch.nn.Module, name: str) -> None:
        """Hooks one module by its whole name; without a name it has no entry."""
        entering, leaving = self._hooks(name)
        if getattr(module, "_compiled_call_impl", None) is not None:
            # Its hooks would be compiled with it.
            around = _around_compiled(module, entering, leaving)
            self._undo.append(replace(module, "_compiled_call_impl", around))
            return
        self._hooked.append((module, Hook(entering), Hook(leaving)))
        self._put_on(*self._hooked[-1])

    def _put_on(self, module: torch.nn.Module, entering: Hook, leaving: Hook) -> None:
        self._entering[id(module)] = module.register_forward_pre_hook(entering, with_kwargs=True)
        self._leaving[id(module)] = module.register_forward_hook(leaving, with_kwargs=True, always_call=True)

    def pause(self) -> Callable[[], None]:
        """Removes the hooks of modules; returns the function that restores them. Not while another thread needs one of
        them."""
        here = threading.get_ident()
        if self._is_detached or any(thread != here for thread, _ in self._pushed):
            return nothing
        undo_all([handle.remove for handle in (*self._entering.values(), *self._leaving.values())], self._capture)

        def go_on() -> None:
            if not self._is_detached:
                for hooked in self._hooked:
                    self._put_on(*hooked)

        return go_on

    def is_inside(self, module: object) -> bool:
        """Whether the innermost call in progress in this thread is this module's, or that of its `torch.compile`
        wrapper."""
        calls = self._calls.open
        if not calls or calls[-1].call is None:
            return False
        return calls[-1].module is module or child(calls[-1].module, "_orig_mod") is module

    def detach(self) -> None:
        """Removes all hooks. The hook that deactivates the mode in another thread, inside of a module now, goes when
        that module's call ends."""
        self._is_detached = True
        handles = [*self._entering.values(), *self._handles]
        self._handles.clear()
        here = threading.get_ident()
        needed = {module for thread, module in self._pushed if thread != here}
        handles += [handle for module, handle in self._leaving.items() if module not in needed]
        self._leaving = {module: handle for module, handle in self._leaving.items() if module in needed}
        undo_all([*self._undo, *(handle.remove for handle in handles)], self._capture)
        self._undo = []
        self._parameters.clear()
        if self._neutral is not None:
            self._neutral.forget()
        self._calls.open.clear()

    def _hooks(self, name: str) -> tuple[Any, Any]:
        # Torch collects a module's hooks and then calls them. Without keywords: one of them has removed ours.
        def entering(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
            if kwargs is None:
                return None
            try:
                return self._enter(module, name, args, kwargs)
            except Exception as error:
                self._capture.note("module", f"{name}: {error}")
                return None

        def leaving(module: torch.nn.Module, _args: Any, *kwargs_and_output: Any) -> Any:
            if len(kwargs_and_output) < 2:
                return None
            try:
                return self._leave(module, name, kwargs_and_output[1])
            except Exception as error:
                self._capture.note("module", f"{name}: {error}")
                return None

        return entering, leaving

    def _enter(self, module: torch.nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._before_call is not None:
            self._before_call()
        records = self._records and bool(name)
        call = self._capture.begin_module(name, args, kwargs) if records else None
        # Before code that may fail: `_leave` takes the topmost of this module.
        is_seen = call is not None or not records
        has_pushed = is_seen and self._mode is not None and self._mode.push_if_absent()
        state = _Call(module, call, has_pushed)
        self._calls.open.append(state)
        if has_pushed:
            self._pushed.append((threading.get_ident(), id(module)))
        if call is not None and is_compiled(module):
            call.note(NOTE)
        if call is None or not self._wants_backward or not torch.is_grad_enabled():
            return None
        state.backward = self._backward_of(call)
        hooked = state.backward.take_inputs(args)
        return None if hooked is args else (hooked, kwargs)

    def _backward_of(self, call: ModuleCall) -> BackwardPass | NeutralPass:
        if self._neutral is None:
            return BackwardPass(call)
        around = (state.backward for state in reversed(self._calls.open[:-1]))
        return self._neutral.of(call, next((one for one in around if isinstance(one, NeutralPass)), None))

    def _leave(self, module: torch.nn.Module, name: str, output: Any) -> Any:
        state = self._take(module)
        if state is None:
            return None
        self._leave_thread(state)
        if state.call is None:
            return None
        error = sys.exc_info()[1]
        failed = output is None and error is not None and error is not state.outer_error
        state.call.end(output, module._parameters, failed)
        if failed or self._is_detached:
            return None
        if self._wants_backward and torch.is_grad_enabled():
            self._await_parameters(module, name)
        if state.backward is None:
            return None
        hooked = state.backward.take_outputs(output)
        return None if hooked is output else hooked

    def _take(self, module: torch.nn.Module) -> _Call | None:
        """The innermost call of this module. Calls inside it that never ended (they raised no `Exception`) are
        discarded."""
        calls = self._calls.open
        for place in range(len(calls) - 1, -1, -1):
            if calls[place].module is module:
                found = calls[place]
                for gone in calls[place + 1 :]:
                    self._leave_thread(gone)
                del calls[place:]
                return found
        return None

    def _leave_thread(self, state: _Call) -> None:
        """Undoes what was activated for the call."""
        if not state.has_pushed or self._mode is None:
            return
        self._mode.pop()
        of = id(state.module)
        self._pushed.remove((threading.get_ident(), of))
        if self._is_detached and all(module != of for _, module in self._pushed):
            self._leaving.pop(of).remove()

    def _await_parameters(self, module: torch.nn.Module, name: str) -> None:
        for key, parameter in module._parameters.items():
            # Only leaves accumulate: `functional_call` puts anything in a parameter's place.
            if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
                continue
            names = self._parameters.get(id(parameter))
            if names is None:
                names = self._parameters[id(parameter)] = []
                arrived = Hook(self._arrival(names))
                self._handles.append(parameter.register_post_accumulate_grad_hook(arrived))
            if (name, key) not in names:
                names.append((name, key))

    def _arrival(self, names: list[tuple[str, str]]) -> Any:
        """`names`: of the modules that have it, each with its name there; tied parameters have several."""

        def arrived(parameter: torch.Tensor) -> None:
            try:
                gradient = getattr(parameter, "main_grad", None)
                gradient = parameter.grad if gradient is None else gradient
                if gradient is not None:
                    for name, key in names:
                        self._capture.parameter_gradient(name, key, gradient)
            except Exception as error:
                self._capture.note("parameters_grad", f"{names[0][0]}.{names[0][1]}: {error}")

        return arrived


def _around_compiled(module: torch.nn.Module, entering: Any, leaving: Any) -> Callable[..., Any]:
    """The replacement of the compiled call of a module that was compiled in place."""
    original = module._compiled_call_impl

    def called(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        hooked = entering(module, args, kwargs)
        args, kwargs = (args, kwargs) if hooked is None else hooked
        try:
            output = original(*args, **kwargs)
        except BaseException:
            leaving(module, args, kwargs, None)
            raise
        passed = leaving(module, args, kwargs, output)
        return output if passed is None else passed

    return called


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether `torch.compile` has wrapped it, or it was compiled in place."""
    return child(module, "_orig_mod") is not None or getattr(module, "_compiled_call_impl", None) is not None


def scripted_modules(model: torch.nn.Module) -> list[str]:
    """The paths of scripted modules, which have no entry; of nested ones the outer one."""
    found: list[str] = []
    for name, module in model.named_modules():
        is_inside = any(name.startswith(f"{outer}.") or not outer for outer in found)
        if isinstance(module, torch.jit.ScriptModule) and not is_inside:
            found.append(name)
    return found


def named_modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules of a model to hook: all of its modules, and the model itself if it is compiled. The inside of a
    compiled module, scripted modules and FSDP's wrappers are skipped."""
    compiled: list[str] = []
    for name, module in model.named_modules():
        if any(name == prefix or name.startswith(f"{prefix}.") for prefix in compiled):
            continue
        if is_compiled(module):
            compiled.extend(f"{name}.{inner}" if name else inner for inner, _ in module.named_children())
        elif not name:
            continue
        if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "FullyShardedDataParallel":
            continue
        yield name, module
