"""Finds optimizers and the models they train in a script that knows nothing of us.

Optimizers are noticed when they are made. The first forward pass with gradients through a module that holds parameters
of one is the moment to attach: wrappers (DDP, FSDP) are on by then, and the first backward pass is still to come. Where
a closure makes that forward pass, the optimizer's step is under way already, and is watched from the closure's end on.
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

    from trainmon.watching.watch import Watch

#: Where torch's base class of optimizers is defined.
_OPTIMIZER_MODULE = "torch.optim.optimizer"

#: So many steps of what is watched are made before the model of another optimizer is not looked for any more: in an
#: adversarial training it may have its turn late.
_MOST_STEPS = 32


class Discovery:
    """Watches every optimizer of the process, from `start` to `finish`. Never raises."""

    def __init__(self, attach_options: AttachOptions, grad_acc_steps: int = 1) -> None:
        self._attach_options = attach_options
        self._grad_acc_steps = grad_acc_steps
        self._pending: list[weakref.ref[Any]] = []
        #: Modules that hold nothing of what is pending.
        self._strangers: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._forward_hook: Any = None
        self._undo: list[Callable[[], object]] = []
        self._is_over = False
        self._failed = False
        self._is_watched_elsewhere = False
        #: The closure of the step under way, followed by a look of ours.
        self._followed: Any = None
        self._made = 0
        self._looking_until = _MOST_STEPS
        self._process = os.getpid()
        self.watches: list[Watch] = []

    def start(self) -> None:
        """Begins to look. torch is not imported for that: a script may have to set its environment first."""
        if _OPTIMIZER_MODULE in sys.modules:
            self._patch(sys.modules[_OPTIMIZER_MODULE])
            return
        finder = _AfterImport(_OPTIMIZER_MODULE, self._patch)
        sys.meta_path.insert(0, finder)
        self._undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)

    def finish(self) -> None:
        """Delivers what was measured, and says it if nothing was."""
        if os.getpid() != self._process:
            # A child of the script, forked: the watches are the parent's.
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
                    "attach in the script: `trainmon.watch(model, optimizer)`",
                )
            else:
                say(
                    "nothing was measured: the script made no torch optimizer",
                    "if a process that it starts does the training, start that one with `python -m trainmon run`",
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
        """Any optimizer is about to step; what this returns takes the place of its arguments."""
        from trainmon.frameworks.optimizer_hooks import after_closure
        from trainmon.hooks.torch_hooks import is_compiling

        if is_compiling() or self._is_over or self._failed:
            return None
        if not any(ref() is optimizer for ref in self._pending):
            return None
        if self._followed is not None and self._followed is _closure_of(args, kwargs):
            # A class that calls its parent's step with the closure it was given.
            return None
        changed = after_closure(args, kwargs, lambda: self._closure_is_over(optimizer))
        self._followed = None if changed is None else _closure_of(*changed)
        return changed

    def _closure_is_over(self, optimizer: Any) -> None:
        """A step's closure has made its gradients. A watch that attached within it knows nothing of this step yet."""
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
                # The optimizers of an engine wrap each other: one watch knows them all.
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
        """Every module call costs as long as something is looked for."""
        self._stop_looking()
        left = sum(ref() is not None for ref in self._pending)
        self._pending = []
        if left and os.environ.get("RANK", "0") == "0":
            say(
                f"optimizers that are not watched: {left}, of parameters that no module's forward pass used",
                "attach in the script: `trainmon.watch(model, optimizer)`",
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
            say(f"models are not looked for any more; training goes on: {type(error).__name__}: {error}")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function when a module has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the others find, with a loader that calls the function afterwards."""
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
    """The closure among the arguments of a step, the optimizer being the first of them."""
    return args[1] if len(args) > 1 else kwargs.get("closure")


def _outermost(called: torch.nn.Module, parameters: set[int]) -> list[torch.nn.Module]:
    """The module that everything is a part of: names do not depend on which part a script happens to call first. The
    called one, which holds all these parameters, where several unrelated modules have it."""
    roots = [one for one in _roots_with(parameters) if any(part is called for part in one.modules())]
    return roots if len(roots) == 1 else [called]


def _roots_with(parameters: set[int]) -> list[torch.nn.Module]:
    """The outermost modules of the process that hold some of these parameters. Once per optimizer: it walks all
    objects."""
    import torch

    # By class: what stands in for an object may run code when it is asked what it is.
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module) and "_modules" in vars(one)]
    holders = [one for one in modules if any(id(parameter) in parameters for parameter in one.parameters())]
    inner = {id(child) for one in holders for child in one.modules() if child is not one}
    return [one for one in holders if id(one) not in inner]
