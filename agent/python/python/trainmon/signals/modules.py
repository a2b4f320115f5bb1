"""Activations: the inputs and outputs of modules, and the gradients of both.

Gradients are measured by hooks on the tensors themselves. Module backward hooks would put identity nodes into the
graph, and so change the order in which gradients are summed, and the training's last bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainmon.common.guard import Guard
from trainmon.common.kinds import Kind
from trainmon.common.settings import Settings
from trainmon.device.measurer import Measurer
from trainmon.hooks.torch_hooks import Hook, in_backward
from trainmon.measurement.labels import Label
from trainmon.signals.eager_modules import eager_modules
from trainmon.signals.forward_passes import ForwardPasses
from trainmon.signals.promised import PromisedRows
from trainmon.signals.sites import Awaited, Call, Shown, Site, tensors_of

#: The number of tensors remembered in a step before dead ones are removed.
_MANY = 4096


class Activations:
    """Measures the modules that the config selects."""

    def __init__(self, measurer: Measurer, guard: Guard, settings: Settings, passes: ForwardPasses) -> None:
        self._measurer = measurer
        self._passes = passes
        self._monitor = measurer.monitor
        self._guard = guard
        self._settings = settings
        self._sites: list[Site] = []
        self._handles: list[RemovableHandle] = []
        #: One module's output is the next one's input: measured once, recorded for both. By identity; the weak
        #: reference shows whether it is still the same tensor, the version whether it still has the same contents.
        self._seen: dict[int, Shown] = {}
        #: The tensor of each id's latest reading.
        self._shown_last: dict[int, weakref.ref[torch.Tensor]] = {}
        #: By identity; for leaves by that and the id under which the gradient is recorded.
        self._awaited: dict[Hashable, Awaited] = {}
        #: The size from which dead tensors are removed from both: a step may never end.
        self._many = _MANY
        self._has_said_again = False
        self._promised = PromisedRows(self._monitor)

    def attach(self, models: Sequence[torch.nn.Module]) -> None:
        """Hooks the modules. Those inside a compiled module are skipped: a hook there is compiled with it, and changes
        the fusion of operators."""
        if not (self._settings.forward or self._settings.backward):
            return
        self._passes.attach(models)
        for vpp_stage, model in enumerate(models):
            for raw, name, module in eager_modules(model, self._monitor, self._settings):
                self._guard.each("activations", name, partial(self._attach_one, vpp_stage, {name, raw}, name, module))

    def _attach_one(self, vpp_stage: int, names: Collection[str], name: str, module: torch.nn.Module) -> None:
        if not any(self._monitor.matches_module(one, vpp_stage) for one in names):
            return
        # msprobe's second monitor writes inputs first. Otherwise only a module that overwrites its input requires it:
        # the input is gone afterwards.
        site = Site(name, vpp_stage, module, self._settings.is_v2 or works_in_place(module))
        if site.enters:
            entering = Hook(self._entering_hook(site))
            self._handles.append(torch.nn.Module.register_forward_pre_hook(module, entering, with_kwargs=True))
        # Of the base class: a scripted module refuses its own method, though it calls its hooks.
        leaving = Hook(self._hook(site))
        self._handles.append(torch.nn.Module.register_forward_hook(module, leaving, with_kwargs=True))
        self._sites.append(site)

    def follow_plan(self, settings: Settings, models: Sequence[torch.nn.Module]) -> None:
        """Applies a change of the measured modules by live control. Between two steps."""
        self._settings = settings
        known = {(site.name, site.vpp_stage): site for site in self._sites}
        self.detach()
        self._sites = []
        self.attach(models)
        for site in self._sites:
            # A module's tensors keep their ids.
            before = known.get((site.name, site.vpp_stage))
            site.ids = site.ids if before is None else before.ids

    def begin_next_step(self) -> None:
        """Prepares for each module's first call of the next step."""
        self._seen.clear()
        self._shown_last.clear()
        awaited, self._awaited = self._awaited, {}
        for one in awaited.values():
            if one.handle is not None:
                one.handle.remove()
        for site in self._sites:
            site.calls.clear()
            site.entered.clear()
            site.recomputed = 0
        self._passes.begin_next_step()

    def step_is_over(self) -> None:
        """Ends a step; after the first one, reports modules without rows."""
        self._promised.step_is_over(self._sites, self._guard.left_out("activations"))

    def run_is_over(self) -> None:
        """Ends the run; reports modules without any rows."""
        self._promised.run_is_over(self._sites, self._guard.left_out("activations"))

    def detach(self) -> None:
        """Removes the hooks."""
        self.begin_next_step()
        self._passes.detach()
        while self._handles:
            self._handles.pop().remove()

    def _entering_hook(self, site: Site) -> Any:
        def entering(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                if self._is_on(site, module):
                    call = self._begin_call(site)
                    self._take_inputs(site, call, args, kwargs)
                    site.entered.append(call)
                    self._measurer.launch()
            except Exception as error:
                self._guard.failed_at("activations", site.name, error)

        return entering

    def _hook(self, site: Site) -> Any:
        def called(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            try:
                if self._is_on(site, module):
                    self._called(site, args, kwargs, output)
            except Exception as error:
                self._guard.failed_at("activations", site.name, error)

        return called

    def _is_on(self, site: Site, module: torch.nn.Module) -> bool:
        return module.training and self._monitor.collecting and not self._guard.is_off("activations", site.name)

    def _called(self, site: Site, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        outputs = list(tensors_of(output))
        call = site.entered.pop() if site.entered else self._begin_call(site)
        if not site.enters:
            self._take_inputs(site, call, args, kwargs)
        if self._settings.forward and not call.is_repeated:
            self._measure_forward(site, call, outputs, True)
        if self._settings.backward and torch.is_grad_enabled():
            if any(one.requires_grad for one in outputs):
                if not call.is_repeated:
                    self._report_missing(site, call, args)
                self._await_gradients(site, call, outputs, True)
            else:
                # The backward pass does not reach this module: its inputs have no gradient here.
                for awaited, label in call.awaited:
                    if label in awaited.labels:
                        awaited.labels.remove(label)
        if not call.is_repeated:
            self._passes.called(site.vpp_stage, outputs)
        self._measurer.launch()
        if len(self._seen) + len(self._awaited) > self._many:
            drop_dead(self._seen)
            drop_dead(self._awaited)
            self._many = max(_MANY, 2 * (len(self._seen) + len(self._awaited)))

    def _begin_call(self, site: Site) -> Call:
        site.has_run = True
        if in_backward():
            # In the order of the calls they repeat, as far as is known.
            number, site.recomputed = site.recomputed, site.recomputed + 1
            micro_step, earlier = site.calls[number] if number < len(site.calls) else (number, 0)
            return Call(True, micro_step, earlier)
        if self._settings.is_v2:
            # Its files have a row per call and no column for micro-batches.
            site.calls.append((len(site.calls), 0))
        else:
            micro_step = self._passes.current(site.vpp_stage)
            site.calls.append((micro_step, sum(micro_step == other for other, _ in site.calls)))
        return Call(False, *site.calls[-1])

    def _take_inputs(self, site: Site, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._settings.forward and not call.is_repeated:
            inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
            self._measure_forward(site, call, inputs, False)
        if self._settings.backward and torch.is_grad_enabled():
            self._await_gradients(site, call, [value for value in args if isinstance(value, torch.Tensor)], False)

    def _measure_forward(self, site: Site, call: Call, tensors: Sequence[torch.Tensor], is_output: bool) -> None:
        for index, tensor in enumerate(tensors):
            identity = self._id(site, call, is_output, False, index, len(tensors))
            label = Label(identity, Kind.ACTV, call.micro_step)
            known = self._known(tensor)
            if known is None or not self._measurer.repeat(label, known):
                self._measurer.measure(label, tensor.detach())
            shown = Shown(weakref.ref(tensor), version_of(tensor), identity)
            self._seen[id(tensor)] = shown
            self._shown_last[identity] = shown.tensor

    def _known(self, tensor: torch.Tensor) -> int | None:
        """The id whose latest reading is that of this very tensor with these very contents."""
        seen = self._seen.get(id(tensor))
        if seen is None or not is_same(seen.tensor, tensor):
            return None
        if seen.version is None or seen.version != version_of(tensor):
            return None
        # The module may have been called again since: its latest reading is then that of another tensor.
        return seen.id if is_same(self._shown_last[seen.id], tensor) else None

    def _await_gradients(self, site: Site, call: Call, tensors: Sequence[torch.Tensor], is_output: bool) -> None:
        for index, tensor in enumerate(tensors):
            if tensor.requires_grad:
                identity = self._id(site, call, is_output, True, index, len(tensors))
                label = Label(identity, Kind.ACTV_GRAD, call.micro_step)
                awaited = self._await_gradient(site, tensor, label)
                if not is_output:
                    call.awaited.append((awaited, label))

    def _report_missing(self, site: Site, call: Call, args: tuple[Any, ...]) -> None:
        """Records inputs without a gradient."""
        inputs = [value for value in args if isinstance(value, torch.Tensor)]
        for index, tensor in enumerate(inputs):
            if not tensor.requires_grad:
                identity = self._id(site, call, False, True, index, len(inputs))
                self._monitor.observe_missing(identity, Kind.ACTV_GRAD, call.micro_step)

    def _await_gradient(self, site: Site, tensor: torch.Tensor, label: Label) -> Awaited:
        # A leaf's hook is called in every backward pass of the step, and each module that receives it has its own.
        key = (id(tensor), label.tensor_id) if tensor.is_leaf else id(tensor)
        version = version_of(tensor)
        awaited = self._awaited.get(key)
        # In-place operations move the tensor to another node of the graph: its hook stays at the old one.
        if (
            awaited is not None
            and is_same(awaited.tensor, tensor)
            and (tensor.is_leaf or (version is not None and awaited.version == version))
        ):
            awaited.labels.append(label)
            return awaited
        awaited = Awaited(weakref.ref(tensor), version, [label])
        handle = tensor.register_hook(self._gradient_hook(site, awaited))
        if tensor.is_leaf:
            awaited.handle = handle
        self._awaited[key] = awaited
        return awaited

    def _gradient_hook(self, site: Site, awaited: Awaited) -> Any:
        def arrived(gradient: torch.Tensor) -> None:
            try:
                if self._monitor.collecting and not self._guard.is_off("activation gradients", site.name):
                    self._arrived(awaited, gradient)
            except Exception as error:
                self._guard.failed_at("activation gradients", site.name, error)

        return arrived

    def _arrived(self, awaited: Awaited, gradient: torch.Tensor) -> None:
        labels, awaited.labels = awaited.labels, []
        if not labels:
            if awaited.handle is None:
                self._say_again()
            return
        first = labels[0]
        self._measurer.measure(first, gradient)
        for label in labels[1:]:
            if not self._measurer.repeat(label, first.tensor_id):
                self._measurer.measure(label, gradient)
        self._measurer.launch()

    def _say_again(self) -> None:
        if not self._has_said_again:
            self._has_said_again = True
            self._monitor.say(
                "info",
                "activations have more than one gradient as backward runs through a graph again; the first is recorded",
                "with `create_graph` that is the one of the inner `autograd.grad`",
            )

    def _id(self, site: Site, call: Call, is_output: bool, is_gradient: bool, index: int, of: int) -> int:
        key = (is_output, is_gradient, index, of, call.earlier)
        identity = site.ids.get(key)
        if identity is None:
            name = self._monitor.activation_name(site.name, is_output, is_gradient, index, of, call.earlier)
            identity = site.ids[key] = self._monitor.register(name, site.vpp_stage)
        return identity


def works_in_place(module: torch.nn.Module) -> bool:
    """Whether it, or a module in it, overwrites its input, as torch's activations and dropouts do with `inplace`."""
    return any(getattr(one, "inplace", False) is True for one in module.modules())


def is_same(reference: weakref.ref[torch.Tensor], tensor: torch.Tensor) -> bool:
    """Whether a weak reference is to this very tensor."""
    found: torch.Tensor | None = reference()
    return found is tensor


def version_of(tensor: torch.Tensor) -> int | None:
    """Torch's count of writes to a tensor; None if there is none, as for tensors created in inference mode."""
    return None if tensor.is_inference() else tensor._version


def drop_dead(known: dict[Any, Shown] | dict[Any, Awaited]) -> None:
    """Removes dead tensors."""
    for key in [key for key, one in known.items() if one.tensor() is None]:
        del known[key]
