"""Whether a capture has left torch and a model as they were."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from support.torch_inside import function_modes, hooks_of, hooks_of_tensor
from trainmon.captures.operators import operators


def names_of_torch() -> dict[str, Any]:
    """What a capture may replace, by name."""
    found = {}
    for operator in operators():
        found[f"{operator.prefix}.{operator.api}"] = operator.function
        code = getattr(operator.function, "__code__", None)
        if code is not None:
            found[f"{operator.prefix}.{operator.api} code"] = code
    for name in ("all_reduce", "isend", "broadcast"):
        function = getattr(torch.distributed, name)
        found[name] = (function, function.__code__)
    clip = torch.nn.utils.clip_grad_norm_
    found["clip"] = (clip, clip.__code__)
    found["compile"] = torch.compile
    found["backward of functions"] = torch.autograd.function.BackwardCFunction.apply
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    for name in ("set_eval_frame", "_maybe_set_eval_frame"):
        found[name] = getattr(dynamo, name, None)
    found["methods"] = dict(vars(torch.Tensor))
    return found


def assert_untouched(before: dict[str, Any], model: nn.Module) -> None:
    """Everything is what it was when `before` was taken, and the model has no hook."""
    after = names_of_torch()
    assert list(after) == list(before)
    for name, value in before.items():
        if name == "methods":
            assert after[name] == value
        elif isinstance(value, tuple):
            assert all(one is other for one, other in zip(value, after[name], strict=True)), name
        else:
            assert after[name] is value, name
    assert function_modes() == 0
    assert not hooks_of(model) and not any(map(hooks_of_tensor, model.parameters()))
