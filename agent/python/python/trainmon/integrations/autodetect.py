"""Finds optimizers and the models they train in a script without trainmon.

Optimizers are detected at their creation. trainmon attaches at the first forward pass with gradients through a module
that holds parameters of one: wrappers (DDP, FSDP) are present by then, and the first backward pass is still to come. If
a closure makes that forward pass, the optimizer's step is already in progress, and is watched from the closure's end
on.
"""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainmon.common.notices import say
from trainmon.frameworks.deepspeed_layouts import is_deepspeeds
from trainmon.hooks.replacement import replace
from trainmon.integrations.attach import AttachOptions, attach

if TYPE_CHECKING:
    import torch

    from trainmon.watches.watch import Watch

#: The module of torch's base class of optimizers.
_OPTIMIZER_MODULE = "torch.optim.optimizer"

#: The number of steps after which the search for the model of another optimizer ends: in an adversarial training it may
#: run late.
_MOST_STEPS = 32


class Discovery:
    """Watches every optimizer of the process, from `start` to `finish`. Never raises."""

    def __init__(self, attach_options: AttachOptions, grad_acc_steps: int = 1) -> None:
        self._attach_options = attach_options
        self._grad_acc_steps = grad_acc_steps
        self._pending: list[weakref.ref[Any]] = []
        #: Modules without parameters of pending optimizers.
        self._strangers: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._forward_hook: Any = None
        self._undo: list[Callable[[], object]] = []
        self._is_over = False
        self._failed = False
        self._is_watched_elsewhere = False
        #: The closure of the step in progress, followed by a check of ours.
        self._followed: Any = None
        self._made = 0
        self._looking_until = _MOST_STEPS
        self._process = os.getpid()
        self.watches: list[Watch] = []

    def start(self) -> None:
        """Starts the search, without importing torch: a script may have to set its environment first."""
        if _OPTIMIZER_MODULE in sys.modules:
            self._patch(sys.modules[_OPTIMIZER_MODULE])
            return
        finder = _AfterImport(_OPTIMIZER_MODULE, self._patch)
        sys.meta_path.insert(0, finder)
        self._undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)

    def finish(self) -> None:
        """Delivers the measured data, and warns if there is none."""
        if os.getpid() != self._process:
            # A forked child of the script: the watches are the parent's.
            return
        self._is_over = True
        self._stop_looking()
        while self._undo:
            self._undo.pop()()
        for watch in self.watches:
            watch.close()
        is_told = self._failed or self._is_watched_elsewhere
        if not self.watches and os.environ.get("RANK", "0") == "0" and not is_told:
            if self._made:
                say(
                    "nothing was measured: no forward pass with gradients went through a module with an optimizer's "
                    "parameters",
                    "add `trainmon.watch(model, optimizer)` to the script",
                )
            else:
                say(
                    "nothing was measured: the script created no torch optimizer",
                    "if it starts another process for the training, start that one with `python -m trainmon run`",
                )

    def _patch(self, module: ModuleType) -> None:
        base: Any = module.Optimizer
        original = base.__init__

        @functools.wraps(original)
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(optimizer, *args, **kwargs)
            self._guarded(lambda: self._made_one(optimizer))

        self._undo.append(replace(base, "__init__", __init__))
        self._undo.append(module.register_optimizer_step_pre_hook(self._before_step).remove)

    def _made_one(self, optimizer: Any) -> None:
        if self._is_over or os.getpid() != self._process:
            return
        self._made += 1
        self._pending.append(weakref.ref(optimizer))
        self._strangers.clear()
        if self._forward_hook is None:
            from torch.nn.modules.module import register_module_forward_pre_hook

            from trainmon.hooks.torch_hooks import Hook

            self._looking_until = self._steps() + _MOST_STEPS
            self._forward_hook = register_module_forward_pre_hook(Hook(self._before_forward))

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles any optimizer's step; a result replaces its arguments."""
        from trainmon.frameworks.optimizer_hooks import after_closure
        from trainmon.hooks.torch_hooks import is_compiling

        if is_compiling() or self._is_over or self._failed:
            return None
        if not any(ref() is optimizer for ref in self._pending):
            return None
        if self._followed is not None and self._followed is _closure_of(args, kwargs):
            # A class that calls its parent's step with the closure it received.
            return None
        changed = after_closure(args, kwargs, lambda: self._closure_is_over(optimizer))
        self._followed = None if changed is None else _closure_of(*changed)
        return changed

    def _closure_is_over(self, optimizer: Any) -> None:
        """Handles the end of a step's closure, which computed the gradients. A watch that attached within it does not
        know this step yet."""
        self._followed = None
        for watch in self.watches:
            if watch.framework.job.optimizer is optimizer:
                watch.about_to_step()

    def _before_forward(self, module: torch.nn.Module, _inputs: Any) -> None:
        self._guarded(lambda: self._look_at(module))

    def _look_at(self, module: torch.nn.Module) -> None:
        import torch

        if not torch.is_grad_enabled() or os.getpid() != self._process:
            return
        if self._steps() >= self._looking_until:
            self._give_up()
            return
        if module in self._strangers:
            return
        held = {id(one) for one in module.parameters()}
        engine = is_deepspeeds(module, "DeepSpeedEngine")
        found = False
        for optimizer in [one for one in (ref() for ref in self._pending) if one is not None]:
            its = {id(one) for group in optimizer.param_groups for one in group["params"]}
            if engine or its & held:
                found = True
                # The optimizers of an engine wrap each other: one watch covers them all.
                self._pending = [] if engine else [ref for ref in self._pending if ref() is not optimizer]
                self._attach(module, its, held, None if engine else optimizer)
                if engine:
                    break
        if not found:
            self._strangers.add(module)
        if all(ref() is None for ref in self._pending):
            self._stop_looking()

    def _attach(self, module: torch.nn.Module, its: set[int], held: set[int], optimizer: Any) -> None:
        is_of_engine = optimizer is None
        models = [module] if is_of_engine else _outermost(module, its) if its <= held else _roots_with(its)
        ours = [one for model in models for one in model.parameters() if id(one) in its]
        from trainmon.frameworks.live_watches import live_watch

        if optimizer is not None and live_watch(models, optimizer) is not None:
            # The script watches it itself, or a callback does.
            self._is_watched_elsewhere = True
            return
        watch = attach(
            models,
            optimizer,
            self._attach_options,
            grad_acc_steps=self._grad_acc_steps,
            only=ours if self._made > 1 and not is_of_engine else None,
        )
        if watch is None:
            self._failed = True
        else:
            self.watches.append(watch)

    def _steps(self) -> int:
        return max((watch.monitor.step for watch in self.watches), default=0)

    def _give_up(self) -> None:
        """Ends the search: it slows down every module call."""
        self._stop_looking()
        left = sum(ref() is not None for ref in self._pending)
        self._pending = []
        if left and os.environ.get("RANK", "0") == "0":
            say(
                f"optimizers not watched: {left}; no module's forward pass used their parameters",
                "add `trainmon.watch(model, optimizer)` to the script",
            )

    def _stop_looking(self) -> None:
        hook, self._forward_hook = self._forward_hook, None
        if hook is not None:
            hook.remove()

    def _guarded(self, body: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            body()
        except Exception as error:
            self._failed = True
            say(f"the search for models ended; training continues: {type(error).__name__}: {error}")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function when a module has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec from the other finders, with a loader that calls the function afterwards."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            loader.exec_module = exec_module
        return spec


def _closure_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The closure among the arguments of a step, of which the optimizer is the first."""
    return args[1] if len(args) > 1 else kwargs.get("closure")


def _outermost(called: torch.nn.Module, parameters: set[int]) -> list[torch.nn.Module]:
    """The module that contains all others, so that names do not depend on the part that a script calls first. If
    several unrelated modules contain it, the called one, which holds all these parameters."""
    roots = [one for one in _roots_with(parameters) if any(part is called for part in one.modules())]
    return roots if len(roots) == 1 else [called]


def _roots_with(parameters: set[int]) -> list[torch.nn.Module]:
    """The outermost modules of the process that hold some of these parameters. Once per optimizer: walks all
    objects."""
    import torch

    # By class: a proxy object may run code when its type is queried.
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module) and "_modules" in vars(one)]
    holders = [one for one in modules if any(id(parameter) in parameters for parameter in one.parameters())]
    inner = {id(child) for one in holders for child in one.modules() if child is not one}
    return [one for one in holders if id(one) not in inner]
