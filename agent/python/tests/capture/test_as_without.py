"""What a script does inside a capture it does as without: other paths of torch's, transforms, tracing, threads."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainmon
from support.captures import entries

LEVELS = ["L0", "L1", "mix", "L2"]


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


FAST: dict[str, Callable[[nn.TransformerEncoder], torch.Tensor]] = {
    "encoder": lambda net: net(X),
    "encoder with padding": lambda net: net(X, src_key_padding_mask=PADDING),
    "layer": lambda net: net.layers[0](X),
    "attention": lambda net: net.layers[0].self_attn(X, X, X, need_weights=False)[0],
}


@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("name", FAST)
def test_a_fast_path_is_taken_as_without(tmp_path: Path, name: str, level: str) -> None:
    """Torch has it for evaluation, and does not take it where it finds a mode. (At L0 and mix it finds hooks: the next
    test.)"""
    net = encoder()
    with torch.no_grad():
        expected = FAST[name](net)
        with trainmon.capture(dump_path=str(tmp_path), level=level, quiet=True):
            found = FAST[name](net)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_fast_path_is_left_for_hooks_as_torch_leaves_it(tmp_path: Path, level: str) -> None:
    net, hooked = encoder(), encoder()
    for module in hooked.modules():
        module.register_forward_hook(lambda *_: None)
    with torch.no_grad():
        expected = hooked(X)
        with trainmon.capture(net, dump_path=str(tmp_path), level=level, quiet=True):
            assert torch.equal(net(X), expected)


LINEAR = nn.Linear(3, 3)
ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))


def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.func.functional_call(LINEAR, parameters, (x,)).square().sum()


def tangent() -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(ROWS, ROWS)
        found: torch.Tensor = torch.autograd.forward_ad.unpack_dual(torch.tanh(LINEAR(dual))).tangent
        return found.clone()


def updated() -> torch.Tensor:
    weight = nn.Parameter(torch.complex(ROWS, -ROWS))
    weight.grad = torch.complex(-ROWS, ROWS)
    torch.optim.Adam([weight], lr=0.1).step()
    return weight.detach()


def traced(t: torch.Tensor) -> torch.Tensor:
    return F.gelu(t) * 2 + F.layer_norm(t, (3,))


WORK: dict[str, Callable[[], torch.Tensor]] = {
    "grad": lambda: torch.func.grad(loss_of)(dict(LINEAR.named_parameters()), ROWS)["weight"],
    "grad of rows": lambda: torch.func.vmap(torch.func.grad(loss_of), (None, 0))(dict(LINEAR.named_parameters()), ROWS)[
        "weight"
    ],
    "jvp": lambda: torch.func.jvp(lambda t: torch.tanh(t) * 2, (ROWS,), (ROWS,))[1],
    "jacobian": lambda: torch.func.jacrev(lambda t: torch.tanh(t @ t.T))(ROWS),
    "hessian": lambda: torch.func.hessian(lambda t: torch.tanh(t).sum())(ROWS[0]),
    "forward derivative": tangent,
    "complex optimizer": updated,
    "trace of a module": lambda: torch.jit.trace(LINEAR, ROWS)(ROWS),
    "trace of a function": lambda: torch.jit.trace(traced, ROWS)(ROWS),
    "symbolic trace": lambda: torch.fx.symbolic_trace(nn.Sequential(LINEAR, nn.GELU()))(ROWS),
    "export": lambda: torch.export.export(nn.Sequential(LINEAR, nn.GELU()), (ROWS,)).module()(ROWS),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", WORK)
def test_transforms_and_tracing_give_what_they_give_without(tmp_path: Path, name: str, level: str) -> None:
    expected = WORK[name]()
    with trainmon.capture(LINEAR, dump_path=str(tmp_path), level=level, quiet=True):
        found = WORK[name]()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("level", LEVELS)
def test_functions_show_their_own_arguments(tmp_path: Path, level: str) -> None:
    functions = [F.dropout, F.cross_entropy, F.softmax, torch.einsum, torch.norm, nn.utils.clip_grad_norm_]
    looks: list[Callable[[Any], Any]] = [inspect.signature, inspect.getfullargspec, inspect.getsource]
    expected = [[look(one) for look in looks] for one in functions]
    attributes = [dict(vars(one)) for one in functions]
    with trainmon.capture(LINEAR, dump_path=str(tmp_path), level=level, quiet=True):
        found = [[look(one) for look in looks] for one in functions]
    assert found == expected
    assert [dict(vars(one)) for one in functions] == attributes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(3, 3), nn.Sequential(nn.GELU(), nn.Linear(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.rest(self.first(x))) * 2


@pytest.mark.parametrize("level", LEVELS)
def test_a_model_that_runs_in_another_thread_has_the_entries_it_has_in_this_one(tmp_path: Path, level: str) -> None:
    net, found = Net(), []

    def run() -> None:
        net(ROWS)

    for name, is_here in (("here", True), ("there", False)):
        with trainmon.capture(net, dump_path=str(tmp_path / name), level=level, quiet=True):
            thread = threading.Thread(target=run)
            if is_here:
                run()
            else:
                thread.start()
                thread.join()
        found.append(list(entries(tmp_path / name)))
    assert found[0] == found[1] and len(found[0]) >= 4


@dataclass
class Output:
    y: torch.Tensor
    more: dict[str, list[torch.Tensor]]


MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda y: y,
    "tuple": lambda y: (y, y * 2, None),
    "list": lambda y: [y, y * 2],
    "mapping": lambda y: {"y": y, "z": y * 2},
    "dataclass": lambda y: Output(y, {"z": [y * 2]}),
}
TAKEN: dict[str, Callable[[Any], torch.Tensor]] = {
    "tensor": lambda given: given,
    "tuple": lambda given: given[0] + 3 * given[1],
    "list": lambda given: given[0] + 3 * given[1],
    "mapping": lambda given: given["y"] + 3 * given["z"],
    "dataclass": lambda given: given.y + 3 * given.more["z"][0],
}


class Giving(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(3, 3), kind

    def forward(self, x: torch.Tensor) -> Any:
        return MADE[self.kind](self.linear(x))


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("kind", MADE)
def test_a_module_has_gradients_whatever_its_output_is(tmp_path: Path, kind: str, level: str) -> None:
    model, x = nn.Sequential(Giving(kind)), ROWS.clone().requires_grad_()
    with trainmon.capture(model, dump_path=str(tmp_path), level=level, quiet=True):
        TAKEN[kind](model(x)).square().sum().backward()
    entry = entries(tmp_path)["Module.0.Giving.backward.0"]
    assert x.grad is not None
    assert entry["output"][0]["Norm"] == pytest.approx(x.grad.norm().item(), rel=1e-6)
    gradients = [one for one in entry["input"] if one]
    assert len(gradients) == (1 if kind == "tensor" else 2)
    if kind != "tensor":
        # The second is three times what the sum is given, the first has that and what comes back through the second.
        assert gradients[0]["Norm"] == pytest.approx(gradients[1]["Norm"] * 7 / 3, rel=1e-5)


def test_stacks_have_the_users_frames_and_none_of_what_stands_in(tmp_path: Path) -> None:
    def reduce(tensor: torch.Tensor) -> None:
        torch.distributed.all_reduce(tensor)

    def clip() -> None:
        nn.utils.clip_grad_norm_([weight], 1.0, foreach=False)

    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        with trainmon.capture(dump_path=str(tmp_path), level="L1", quiet=True):
            reduce(torch.ones(2))
            clip()
    finally:
        torch.distributed.destroy_process_group()
    [file] = tmp_path.glob("step0/*/stack.json")
    stacks = {name: frames for names, frames in json.loads(file.read_text()).values() for name in names}
    assert ", in reduce, " in stacks["Distributed.all_reduce.0.forward"][0]
    [norm] = [frames for name, frames in stacks.items() if "norm" in name and "vector" in name][:1]
    inside = [frame.split(", in ")[1].split(",")[0] for frame in norm]
    assert "clip_grad_norm_" in inside and inside.index("clip_grad_norm_") < inside.index("clip")
    assert not any(frame.endswith("with torch.no_grad():") for frame in norm)


def test_backwards_stand_in_the_modules_they_ran_in(tmp_path: Path) -> None:
    """The first module of a model has no gradient of its own input: its functions stand in it all the same."""
    model = nn.Sequential(Net(), nn.Linear(3, 1))
    with trainmon.capture(model, dump_path=str(tmp_path), level="mix", quiet=True):
        model(ROWS).sum().backward()
    [file] = tmp_path.glob("step0/*/construct.json")
    parents = json.loads(file.read_text())
    for name, parent in parents.items():
        if name.endswith("forward") or ".forward." in name:
            backward, forward = name.replace("forward", "backward"), parent and parent.replace("forward", "backward")
            assert backward not in parents or parents[backward] == forward, (name, parents[backward])
    assert parents["Module.0.first.Linear.backward.0"] == "Module.0.Net.backward.0"
    assert parents["Functional.linear.0.backward"] == "Module.0.first.Linear.backward.0"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", ["model", "child"])
@pytest.mark.parametrize("before", [True, False], ids=["before the call", "after it"])
def test_a_capture_may_end_inside_of_a_hook_of_the_users(tmp_path: Path, level: str, place: str, before: bool) -> None:
    """Torch goes on with the hooks that it has taken together, ours among them."""
    net = Net()
    capture = trainmon.capture(net, dump_path=str(tmp_path), level=level, quiet=True)

    def ends(*_arguments: Any) -> None:
        capture.__exit__()

    module = net if place == "model" else net.rest
    register = module.register_forward_pre_hook if before else module.register_forward_hook
    register(ends)
    expected = torch.relu(net.rest[1](net.rest[0](net.first(ROWS)))) * 2
    capture.__enter__()
    assert torch.equal(net(ROWS), expected)
    assert torch.equal(net(ROWS), expected)


def test_modules_that_give_what_they_are_given_have_a_backward_and_are_nobodys_parent(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Linear(3, 3), nn.Identity(), nn.ReLU(inplace=True), nn.LayerNorm(3), nn.Dropout(0.5).eval(), nn.Linear(3, 1)
    )
    with trainmon.capture(model, dump_path=str(tmp_path), level="mix", quiet=True):
        model(ROWS).sum().backward()
    data = entries(tmp_path)
    for number, module in enumerate(model):
        assert f"Module.{number}.{type(module).__name__}.backward.0" in data
    for passing in ("Module.1.Identity.backward.0", "Module.4.Dropout.backward.0"):
        assert data[passing]["input"][0]["Norm"] == data[passing]["output"][0]["Norm"]
    [file] = tmp_path.glob("step0/*/construct.json")
    parents = json.loads(file.read_text())
    assert {name: parent for name, parent in parents.items() if name.endswith("backward")} == {
        "Tensor.sum.0.backward": None,
        "Functional.linear.1.backward": "Module.5.Linear.backward.0",
        "Functional.layer_norm.0.backward": "Module.3.LayerNorm.backward.0",
        "Functional.relu.0.backward": "Module.2.ReLU.backward.0",
        "Functional.linear.0.backward": "Module.0.Linear.backward.0",
    }
    assert all(parents[f"Module.{number}.{type(one).__name__}.backward.0"] is None for number, one in enumerate(model))
