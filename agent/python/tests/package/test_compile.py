"""torch.compile: gradients, moments and parameters as without, and the compiled training's bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import cache_dir

import trainmon
from support import runs, tiny
from support.configs import PARAMETERS
from support.ranks import run_ranks

CONFIG = {
    "ops": ["min", "max", "mean", "norm"],
    **PARAMETERS,
}


def in_place(net: nn.Module) -> nn.Module:
    net.compile(backend="aot_eager")
    return net


#: torch gives the compiler the paths of its libraries and of its cache as words of a line, and does not quote them all.
NOT_FOR_INDUCTOR = [place for place in (torch.__file__, cache_dir(), tempfile.gettempdir()) if " " in place]
needs_inductor = pytest.mark.skipif(
    bool(NOT_FOR_INDUCTOR), reason=f"torch's inductor does without spaces in paths: {', '.join(NOT_FOR_INDUCTOR)}"
)

COMPILED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "wrapped": lambda net: torch.compile(net, backend="aot_eager"),
    "in place": in_place,
    "inductor": torch.compile,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What inductor makes of an embedding's backward pass adds up in any order on several threads, watched or not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, first: int, steps: int) -> list[torch.Tensor]:
    seen = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = tiny.loss_of(net, step, 0)
        loss.backward()
        seen.append(loss.detach().clone())
        seen += [one.grad.clone() for one in net.parameters() if one.grad is not None]
        optimizer.step()
    return seen


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=needs_inductor if way == "inductor" else ()) for way in COMPILED]
)
@pytest.mark.parametrize("first", [0, 2], ids=["from the start", "late"])
def test_every_signal_and_the_same_bits(tmp_path: Path, way: str, first: int) -> None:
    last = 5

    def run(watched: bool) -> list[torch.Tensor]:
        torch._dynamo.reset()
        net = COMPILED[way](tiny.model())
        optimizer = tiny.optimizer_of(net)
        seen = train(net, optimizer, 0, first)
        if not watched:
            return [*seen, *train(net, optimizer, first, last - first), torch.random.get_rng_state()]
        with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(tmp_path), start_iteration=first):
            seen += train(net, optimizer, first, last - first)
        return [*seen, torch.random.get_rng_state()]

    expected, found = run(False), run(True)
    assert len(expected) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    directory = runs.run_directory(tmp_path, 0)
    truth = list(tiny.reference(1, last))
    kinds = ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated")
    rows = {kind: runs.rows(directory, kind) for kind in kinds}
    for number in range(first, last):
        step = truth[number]
        for name, mean in step.mean.items():
            shown = {kind: runs.by_name(rows[kind], number).get(name) for kind in kinds}
            expected_of = {
                "grad_unreduced": step.local[0][name],
                "grad_reduced": mean,
                "param_origin": step.before[name],
                "param_updated": step.after[name],
            }
            if number:
                earlier = truth[number - 1]
                expected_of |= {"exp_avg": earlier.exp_avg[name], "exp_avg_sq": earlier.exp_avg_sq[name]}
            for kind, tensor in expected_of.items():
                row = shown[kind]
                assert row is not None, (kind, name, number)
                # A compiler adds up in another order.
                runs.assert_shows(row, tensor, relative=1e-3, what=kind)


def test_a_watch_compiles_nothing_anew(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = 0

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
        nonlocal compiled
        compiled += 1
        return graph.forward

    net = torch.compile(tiny.model(), backend=backend)
    optimizer = tiny.optimizer_of(net)
    train(net, optimizer, 0, 2)
    before = compiled
    assert before > 0
    with trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(tmp_path)):
        train(net, optimizer, 2, 2)
    train(net, optimizer, 4, 1)
    assert compiled == before


def test_under_ddp_and_fully_shard(tmp_path: Path) -> None:
    cases = ["ddp_compiled", "fsdp2_compiled"]
    said = run_ranks("parallel_train.py", 2, tmp_path, 4, *cases, environment={"TORCH_FR_BUFFER_SIZE": "200000"})
    assert said.count("checked") == len(cases)
