"""What torch itself says of a training that golden cases are compared with: read by hooks and between its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from support import runs
from support.golden import Case

Statistics = dict[str, float]
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")


class Truth:
    """Statistics of every tensor that rows may be about, and what was there at all. Attached before the first step."""

    def __init__(self, net: torch.nn.Module, optimizer: torch.optim.Optimizer, case: Case) -> None:
        self.step = self.micro = 0
        self.elements = {name: one.numel() for name, one in net.named_parameters()}
        #: By kind, step, micro-batch (none: of the whole step) and row.
        self.shown: dict[tuple[str, int, int | None, str], Statistics] = {}
        #: By step and micro-batch, in the order of their coming: modules that were left, gradients of module inputs and
        #: outputs (over all consumers of the tensor), parameters that got a gradient.
        self.called: dict[tuple[int, int], list[str]] = {}
        self.reached: dict[tuple[int, int], list[str]] = {}
        self.arrived: dict[tuple[int, int], list[str]] = {}
        #: Rows of inputs that take no gradient, by the same.
        self._constants: set[tuple[int, int, str]] = set()
        self._net, self._optimizer, self._case = net, optimizer, case
        self._eps = case.json["config"].get("eps", 1e-8)
        for name, parameter in net.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda parameter, name=name: self._arrived(name, parameter))
        for name, module in net.named_modules():
            if case.is_v2:
                module.register_forward_pre_hook(self._entering(name), with_kwargs=True)
            module.register_forward_hook(self._hook(name), with_kwargs=True)

    def before_step(self) -> None:
        """The optimizer is about to step."""
        for name, one in self._net.named_parameters():
            self._put("grad_reduced", name, one.grad)
            self._put("param_origin", name, one)
            for moment in MOMENTS:
                self._put(moment, name, self._optimizer.state.get(one, {}).get(moment))

    def after_step(self) -> None:
        """The optimizer has stepped."""
        for name, one in self._net.named_parameters():
            self._put("param_updated", name, one)

    def has(self, kind: str, row: Mapping[str, str]) -> bool:
        """Whether what a row is about was there in its step, and in its micro-batch if it names one."""
        return bool(self._of(kind, row))

    def agrees(self, kind: str, row: Mapping[str, str]) -> bool:
        """Whether every number of a row is that of its tensor."""
        return any(
            all(self.is_shown(row[name], one[name]) for name in one.keys() & row.keys()) for one in self._of(kind, row)
        )

    def agrees_in(self, kind: str, row: Mapping[str, str], column: str) -> bool:
        """Whether this number of a row is that of its tensor."""
        return any(self.is_shown(row[column], one.get(column)) for one in self._of(kind, row))

    def whole_gradients(self, row: Mapping[str, str]) -> list[Statistics]:
        """Of the gradient of a module's input or output, over all its consumers; of each micro-batch, if the row does
        not say which."""
        return self._of("actv_grad", row)

    def is_constant(self, row: Mapping[str, str]) -> bool:
        """Whether a row is about a module's input that takes no gradient."""
        name = row.get("name") or row["module_name"]
        return any((int(row["step"]), micro, name) in self._constants for micro in self._micro_batches(row))

    def _micro_batches(self, row: Mapping[str, str]) -> list[int]:
        micro = row.get("micro_step")
        return list(range(self._case.json.get("grad_acc", 1))) if micro is None else [int(micro)]

    def is_shown(self, cell: str, truth: float | None) -> bool:
        """Whether a cell shows this number, with the digits that were asked for."""
        if truth is None:
            return False
        found, digits = float(cell), self._case.ndigits
        if math.isnan(truth) or math.isnan(found):
            return math.isnan(truth) and math.isnan(found)
        return math.isclose(
            found, truth, rel_tol=0, abs_tol=1e-6 * abs(truth) + (0.0 if digits is None else 1.1 * 10.0**-digits)
        )

    def _of(self, kind: str, row: Mapping[str, str]) -> list[Statistics]:
        step, name = int(row["step"]), row.get("name") or row["module_name"]
        found = (self.shown.get((kind, step, one, name)) for one in (None, *self._micro_batches(row)))
        return [one for one in found if one is not None]

    def _arrived(self, name: str, parameter: torch.Tensor) -> None:
        self.arrived.setdefault((self.step, self.micro), []).append(name)
        self._put("grad_unreduced", name, parameter.grad, self.micro)

    def _entering(self, name: str) -> Any:
        return lambda _module, args, kwargs: self._watch(name, "input", (*args, *kwargs.values()))

    def _hook(self, name: str) -> Any:
        def called(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self.called.setdefault((self.step, self.micro), []).append(name)
            if not self._case.is_v2:
                self._watch(name, "input", (*args, *kwargs.values()))
            self._watch(name, "output", (output,) if isinstance(output, torch.Tensor) else output)

        return called

    def _watch(self, module: str, end: str, values: Any) -> None:
        tensors = [one for one in values if isinstance(one, torch.Tensor)]
        for index, tensor in enumerate(tensors):
            is_v2 = self._case.is_v2
            numbered = f"{module}.grad_{end}.{index}" if is_v2 else f"{module}.{end}_{index}"
            row = f"{module}.{end}" if not is_v2 and len(tensors) == 1 else numbered
            self._put("actv", row, tensor, self.micro)
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, row=row: self._keep(row, gradient))
            elif end == "input":
                self._constants.add((self.step, self.micro, row))

    def _keep(self, row: str, gradient: torch.Tensor) -> None:
        self.reached.setdefault((self.step, self.micro), []).append(row)
        self._put("actv_grad", row, gradient, self.micro)

    def _put(self, kind: str, name: str, tensor: torch.Tensor | None, micro: int | None = None) -> None:
        if tensor is None:
            return
        exact = runs.statistics(tensor)
        exact["zeros"] = float((tensor.detach().double().abs() < self._eps).double().mean())
        exact["nans"] = float(tensor.isnan().sum())
        self.shown[kind, self.step, micro, name] = exact
