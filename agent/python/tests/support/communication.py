"""What ranks send each other: a trace that is none of ours, every operation there is, and what a watch recorded."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import distributed
from torch.distributed import _functional_collectives as functional
from torch.utils._python_dispatch import TorchDispatchMode

from trainmon._trainmon import run_program

#: By the dispatcher's name: ours, and the places of what comes out and of what goes in.
_OF_DISPATCHER = {
    "c10d.allreduce_": ("all_reduce", 0, 0),
    "c10d.allreduce_coalesced_": ("all_reduce_coalesced", 0, 0),
    "c10d.broadcast_": ("broadcast", 0, 0),
    "c10d.reduce_": ("reduce", 0, 0),
    "c10d.allgather_": ("all_gather", 0, 1),
    "c10d.allgather_coalesced_": ("all_gather_coalesced", 0, 1),
    "c10d._allgather_base_": ("all_gather_into_tensor", 0, 1),
    "c10d.allgather_into_tensor_coalesced_": ("all_gather_into_tensor_coalesced", 0, 1),
    "c10d.gather_": ("gather", 0, 1),
    "c10d.scatter_": ("scatter", 0, 1),
    "c10d.reduce_scatter_": ("reduce_scatter", 0, 1),
    "c10d._reduce_scatter_base_": ("reduce_scatter_tensor", 0, 1),
    "c10d.reduce_scatter_tensor_coalesced_": ("reduce_scatter_tensor_coalesced", 0, 1),
    "c10d.alltoall_base_": ("all_to_all_single", 0, 1),
    "c10d.alltoall_": ("all_to_all", 0, 1),
    "c10d.send": ("send", 0, 0),
    "c10d.recv_": ("recv", 0, 0),
    "c10d.recv_any_source_": ("recv", 0, 0),
    "c10d.barrier": ("barrier", None, None),
    "_c10d_functional.all_reduce": ("all_reduce", None, 0),
    "_c10d_functional.all_reduce_": ("all_reduce", None, 0),
    "_c10d_functional.all_reduce_coalesced": ("all_reduce_coalesced", None, 0),
    "_c10d_functional.all_gather_into_tensor": ("all_gather_into_tensor", None, 0),
    "_c10d_functional.all_gather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", None, 0),
    "_c10d_functional.reduce_scatter_tensor": ("reduce_scatter_tensor", None, 0),
    "_c10d_functional.all_to_all_single": ("all_to_all_single", None, 0),
    "_c10d_functional.broadcast": ("broadcast", None, 0),
    "_c10d_functional.broadcast_": ("broadcast", None, 0),
    "_c10d_functional.all_reduce_coalesced_": ("all_reduce_coalesced", None, 0),
    "_c10d_functional.all_gather_into_tensor_out": ("all_gather_into_tensor", None, 0),
    "_c10d_functional.reduce_scatter_tensor_out": ("reduce_scatter_tensor", None, 0),
    "_c10d_functional.reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", None, 0),
}


@dataclass(frozen=True, order=True)
class Sent:
    """One operation, as everybody must see it."""

    op: str
    ranks: tuple[int, ...]
    bytes: int
    dtype: str
    shape: str


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _shape(tensors: list[torch.Tensor]) -> str:
    shapes = [list(one.shape) for one in tensors]
    if not shapes:
        return "[]"
    if len(shapes) == 1:
        return str(shapes[0])
    return str([len(shapes), *shapes[0]] if all(one == shapes[0] for one in shapes) else [sum(map(_numel, shapes))])


def _numel(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())


def _group_of(arguments: Any) -> Any:
    from torch.distributed.distributed_c10d import _resolve_process_group

    for one in arguments:
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return distributed.ProcessGroup.unbox(one)
    return _resolve_process_group(next(one for one in reversed(arguments) if isinstance(one, str)))


class Trace(TorchDispatchMode):  # type: ignore[misc]
    """Every operation that passes torch's dispatcher, C++'s included, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Sent] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rsplit(".", 1)[0]
        known = _OF_DISPATCHER.get(name)
        if known is None:
            is_none = name.rsplit(".", 1)[-1] in ("wait_tensor", "_wrap_tensor_autograd")
            assert is_none or not name.startswith(("c10d.", "_c10d_functional.")), name
            return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        op, received, given = known
        group = _group_of(args)
        ranks = tuple(distributed.get_process_group_ranks(group))
        out = list(_tensors(result if received is None else args[received])) if op != "barrier" else []
        into = [] if given is None else list(_tensors(args[given]))
        size = {id(side): sum(one.nbytes for one in side) for side in (out, into)}
        larger = out if size[id(out)] > size[id(into)] or not into else into
        total = size[id(larger)]
        if op in ("gather", "scatter") and not (out and into):
            total *= len(ranks)
        dtype = str(larger[0].dtype) if larger else "torch.uint8"
        self.sent.append(Sent(op, ranks, total, dtype, _shape(larger)))
        return result


def recorded(run: Path) -> tuple[list[Sent], list[dict[str, str]]]:
    """What a rank's journal says of every call, by group in the order of its numbers; and the rows themselves."""
    out = run / "recovered"
    journal = next(run.glob("*.tmj"))
    assert run_program(["trainmon", "recover", str(journal), "-o", str(out)]) == 0
    with (out / "collective_calls.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    by_group = defaultdict(list)
    for row in rows:
        by_group[row["process_group"]].append(row)
    in_order = [
        (group, row)
        for group in sorted(by_group)
        for row in sorted(by_group[group], key=lambda row: (row["op"] in ("send", "recv"), int(row["sequence"])))
    ]
    sent = [Sent(row["op"], ranks_of(group), int(row["bytes"]), row["dtype"], row["shape"]) for group, row in in_order]
    return sent, rows


def ranks_of(group: str) -> tuple[int, ...]:
    """The ranks of a group by the name it has in the files of these tests."""
    return GROUPS[group]


def take_groups(watch: Any) -> None:
    """Takes over what the watch calls its groups, and who is in them."""
    GROUPS.update((name, tuple(ranks)) for name, ranks, *_ in watch.collectives.hooks.times())


#: Filled by the script, with what the watch calls its groups.
GROUPS: dict[str, tuple[int, ...]] = {}


def differences(traced: list[Sent], found: list[Sent]) -> tuple[list[Sent], list[Sent]]:
    """What was sent and not recorded, and what was recorded and not sent."""
    missing, more = list(traced), []
    for one in found:
        if one in missing:
            missing.remove(one)
        else:
            more.append(one)
    return missing, more


class Flown(NamedTuple):
    """One operation as torch's flight recorder has it, whatever front it was called by."""

    op: str
    dtype: str
    bytes: int
    shape: str | None
    """None where a backend stacks what it gives."""


_FLIGHT_DTYPES = {"Float": torch.float32, "Int": torch.int32, "Long": torch.int64, "Byte": torch.uint8}
#: The backend's own names are those of the oldest form of each.
_FORMS = ("_into_tensor", "_tensor", "_coalesced", "_single")


def _oldest_form(op: str) -> str:
    for form in _FORMS:
        op = op.removesuffix(form)
    return op


def flown(entry: dict[str, Any]) -> Flown:
    """An entry of the flight recorder, sized as trainmon sizes an operation: by the larger of its two sides."""
    sides = []
    for side in ("input", "output"):
        shapes, dtypes = entry[f"{side}_sizes"], entry[f"{side}_dtypes"]
        each = [_numel(shape) * _FLIGHT_DTYPES[dtype].itemsize for shape, dtype in zip(shapes, dtypes, strict=False)]
        sides.append((sum(each), dtypes, shapes))
    size, dtypes, shapes = max(sides, key=lambda side: side[0])
    is_plain = len(shapes) == 1 and sides[0][2] == sides[1][2]
    op = _oldest_form(entry["profiling_name"].rpartition(":")[2])
    dtype = str(_FLIGHT_DTYPES[dtypes[0]]) if dtypes else "torch.uint8"
    return Flown(op, dtype, size, str(shapes[0]) if is_plain else None)


def as_flown(sent: Sent, like: set[Flown]) -> Flown:
    """What was recorded, as `flown` would have it; `like` says of which operations it knows the shape."""
    form = _oldest_form(sent.op)
    # Gloo adds up the whole on every rank, of which each keeps its part.
    op = "all_reduce" if form == "reduce_scatter" else form
    whole = Flown(op, sent.dtype, sent.bytes, sent.shape)
    return whole if whole in like else whole._replace(shape=None)


def halves() -> list[Any]:
    """The groups of four ranks or more that this one is in: of neighbours, and of every other one."""
    ranks = distributed.get_world_size()
    if ranks < 4:
        return []
    middle = ranks // 2
    members = [range(middle), range(middle, ranks), range(0, ranks, 2), range(1, ranks, 2)]
    made = [(of, distributed.new_group(list(of))) for of in members]
    return [group for of, group in made if distributed.get_rank() in of]


def every_operation(groups: Sequence[Any] = ()) -> list[torch.Tensor]:
    """Calls everything that torch.distributed has, in every form, on all ranks of the world, and some of it in
    `groups`; gives what came of it."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    results: list[torch.Tensor] = []

    def keep(*tensors: Any) -> None:
        results.extend(one.detach().clone() for one in _tensors(tensors))

    def data(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return (torch.arange(_numel(list(shape))).reshape(shape) + 10 * rank).to(dtype)

    _reductions(keep, data)
    _gatherings(keep, data, rank, ranks)
    _exchanges(keep, data, rank, ranks)
    _coalesced(keep, data, ranks)
    _functional(keep, data)
    for group in groups:
        _of_group(keep, data, group)
    distributed.barrier()
    return results


def _reductions(keep: Any, data: Any) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        x = data(2, 3, dtype=dtype)
        distributed.all_reduce(x)
        keep(x)
    work = distributed.all_reduce(x := data(5), async_op=True)
    assert isinstance(work, distributed.Work)
    assert work.wait() is True
    keep(x)
    # A handle that nobody waits for, and one of which only the future is taken.
    x, y = data(3), data(4)
    distributed.all_reduce(x, async_op=True)
    keep(distributed.all_reduce(y, async_op=True).get_future().wait())
    distributed.barrier()
    keep(x)
    distributed.all_reduce(x := torch.zeros(0))
    distributed.all_reduce(x := data(1).reshape(()))
    distributed.broadcast(y := data(3), 1)
    distributed.reduce(z := data(3), 0)
    keep(x, y)
    if distributed.get_rank() == 0:
        keep(z)
    # Straight to the group, as C++ is called.
    distributed.group.WORLD.allreduce([x := data(7)]).wait()
    keep(x)


def _gatherings(keep: Any, data: Any, rank: int, ranks: int) -> None:
    distributed.all_gather(parts := [torch.zeros(2, 3) for _ in range(ranks)], data(2, 3))
    keep(parts)
    # Gloo refuses these, with its own words; msprobe's hook raises before it.
    for uneven in ([torch.zeros(one + 1) for one in range(ranks)], []):
        with pytest.raises((RuntimeError, ValueError)):
            distributed.all_gather(uneven, data(rank + 1))
    distributed.all_gather_into_tensor(whole := torch.zeros(2 * ranks), data(2))
    keep(whole)
    got = [torch.zeros(2) for _ in range(ranks)] if rank == 0 else None
    distributed.gather(data(2), got, dst=0)
    keep(got or [])
    distributed.scatter(part := torch.zeros(2), [data(2) + one for one in range(ranks)] if rank == 0 else None, src=0)
    keep(part)
    distributed.reduce_scatter(part := torch.zeros(2), [data(2) + one for one in range(ranks)])
    keep(part)
    distributed.reduce_scatter_tensor(part := torch.zeros(3), data(3 * ranks))
    keep(part)
    objects: list[Any] = [None] * ranks
    distributed.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    distributed.broadcast_object_list(told := [{"from": rank}], src=0)
    assert objects == [{"rank": one, "text": "x" * one} for one in range(ranks)] and told == [{"from": 0}]


def _exchanges(keep: Any, data: Any, rank: int, ranks: int) -> None:
    distributed.all_to_all_single(out := torch.zeros(ranks), data(ranks))
    keep(out)
    # Each rank sends one element to the first, two to the second and so on.
    sizes = [one + 1 for one in range(ranks)]
    distributed.all_to_all_single(out := torch.zeros(ranks * (rank + 1)), data(sum(sizes)), [rank + 1] * ranks, sizes)
    keep(out)
    distributed.all_to_all(out := [torch.zeros(2) for _ in range(ranks)], [data(2) + one for one in range(ranks)])
    keep(out)
    # Gloo refuses uneven lists.
    with pytest.raises(RuntimeError, match="invalid tensor size"):
        distributed.all_to_all([torch.zeros(rank + 1) for _ in sizes], [data(one) for one in sizes])
    if rank > 1:
        return
    other = 1 - rank
    if rank == 0:
        distributed.send(data(3), other)
        distributed.recv(x := torch.zeros(4), other)
    else:
        distributed.recv(x := torch.zeros(3), other)
        distributed.send(data(4), other)
    works = [distributed.isend(data(2), other), distributed.irecv(y := torch.zeros(2), other)]
    for work in works:
        work.wait()
    pair = [
        distributed.P2POp(distributed.isend, data(6), other),
        distributed.P2POp(distributed.irecv, z := torch.zeros(6), other),
    ]
    for work in distributed.batch_isend_irecv(pair):
        work.wait()
    keep(x, y, z)


def _coalesced(keep: Any, data: Any, ranks: int) -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    with _coalescing_manager():
        for x in (several := [data(2), data(3)]):
            distributed.all_reduce(x)
    keep(several)
    with _coalescing_manager(async_ops=True) as manager:
        for whole, part in (pairs := [(torch.zeros(2 * ranks), data(2)), (torch.zeros(3 * ranks), data(3))]):
            distributed.all_gather_into_tensor(whole, part)
    manager.wait()
    keep(pairs)


def _of_group(keep: Any, data: Any, group: Any) -> None:
    members = distributed.get_process_group_ranks(group)
    work = distributed.all_reduce(x := data(3), group=group, async_op=True)
    distributed.broadcast(y := data(2, 2), members[-1], group=group)
    work.wait()
    distributed.all_gather_into_tensor(whole := torch.zeros(2 * len(members)), data(2), group=group)
    distributed.reduce_scatter_tensor(part := torch.zeros(5), data(5 * len(members)), group=group)
    keep(x, y, whole, part)
    first, last = members[0], members[-1]
    if distributed.get_rank() == first:
        distributed.send(data(9), last, group=group)
    elif distributed.get_rank() == last:
        distributed.recv(got := torch.zeros(9), first, group=group)
        keep(got)
    keep(functional.wait_tensor(functional.all_reduce(data(4), "sum", group)))


def _functional(keep: Any, data: Any) -> None:
    world = distributed.group.WORLD
    keep(functional.wait_tensor(functional.all_reduce(data(3), "sum", world)))
    keep(functional.wait_tensor(functional.all_gather_tensor(data(2, 2), 0, world)))
    keep(functional.wait_tensor(functional.reduce_scatter_tensor(data(4), "sum", 0, world)))
    keep(functional.wait_tensor(functional.all_to_all_single(data(4), None, None, world)))
    keep(functional.wait_tensor(functional.broadcast(data(3), 1, world)))
    for several in (
        functional.all_reduce_coalesced([data(2), data(3)], "sum", world),
        functional.all_gather_into_tensor_coalesced([data(2), data(3, 2)], world),
        functional.reduce_scatter_tensor_coalesced([data(4), data(8)], "sum", [0, 0], world),
    ):
        keep([functional.wait_tensor(one) for one in several])
    _functional_in_place(keep, data, world)


def _functional_in_place(keep: Any, data: Any, world: Any) -> None:
    """What compiled graphs call, in which buffers are used again."""
    operators, name, ranks = torch.ops._c10d_functional, world.group_name, world.size()
    keep(functional.wait_tensor(operators.all_reduce_(data(3), "sum", name)))
    keep(functional.wait_tensor(operators.broadcast_(data(3), 1, name)))
    for one in operators.all_reduce_coalesced_([data(2), data(3)], "sum", name):
        keep(functional.wait_tensor(one))
    whole, part = torch.zeros(2 * ranks), torch.zeros(3)
    keep(functional.wait_tensor(operators.all_gather_into_tensor_out(data(2), ranks, name, out=whole)))
    scattered = operators.reduce_scatter_tensor_out(data(3 * ranks), "sum", ranks, name, out=part)
    keep(functional.wait_tensor(scattered))
