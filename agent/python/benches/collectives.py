"""What measuring adds to each collective operation: none, trainmon and the real msprobe, in one run.

    python collectives.py [--operations 500] [--rounds 7] [--ranks 1] [--kinds all] [--backend fake] [--ddp]
                          [--json FILE]

An operation is `all_reduce` of a small tensor with gloo, synchronous and asynchronous with a wait; with `--kinds` also
`all_gather` of a list, `all_gather_into_tensor`, `broadcast` and, between two ranks or more, `batch_isend_irecv`
(`all`: every one of them). `--ddp` wraps the model in DDP, whose buckets are seen in the dispatcher. Contenders run in
processes of their own, all alive at once; of each round every one has a turn, so that what else the machine does meets
them alike. Between rounds a training step ends, as in a training; its time is not counted. Added time is the median,
over the rounds, of what a contender took longer than the bare loop took just before: a machine whose speed doubles and
halves is then the same one for both. Beside it stands how much longer a contender's shortest round was.

With one rank nothing waits for another process, but with gloo still for its thread: whether that is done before the
caller waits decides about two wake-ups, of more than all that is measured here. With `--backend fake` (torch's own for
tests: nothing is sent) what is left is the calls' own cost.

`times` measures sizes and times, `tensors` the tensors' statistics too, as msprobe always does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

CONTENDERS = ("none", "times", "tensors", "msprobe")
#: What is called where nothing is said; `operations` has the others.
KINDS = ("sync", "async")
#: Of `times` above the bare call, in microseconds; and of `tensors` as a part of msprobe's added time.
MOST_US, MOST_PART = 5.0, 1 / 10


#: What msprobe's own examples measure.
OPS = "min,max,mean,norm,nans,zeros"


def watched(who: str, ops: list[str], model: Any, optimizer: Any, place: str) -> Any:
    """Begins to measure; gives what keeps it alive."""
    if who == "none":
        return None
    distribution: dict[str, Any] = {"enable": True}
    config: dict[str, Any] = {"cc_distribution": distribution, "ops": ops, "format": "csv"}
    if who == "msprobe":
        os.environ["MONITOR_OUTPUT_DIR"] = place
        from msprobe.pytorch import TrainerMon

        path = Path(place) / "config.json"
        path.write_text(json.dumps({**config, "targets": {}}))
        monitor = TrainerMon(str(path), params_have_main_grad=False)
        monitor.set_monitor(model, grad_acc_steps=1, optimizer=optimizer)
        return monitor
    import trainmon

    distribution["cc_payload"] = who == "tensors"
    return trainmon.watch(model, optimizer, config=config, output_dir=place)


def operations(rank: int, ranks: int) -> dict[str, Callable[[], Any]]:
    """What one call of each kind is."""
    import torch
    from torch import distributed

    x = torch.zeros(16)
    parts, whole = [torch.zeros(16) for _ in range(ranks)], torch.zeros(16 * ranks)
    right, left, received = (rank + 1) % ranks, (rank - 1) % ranks, torch.zeros(16)

    def exchange() -> None:
        pair = [
            distributed.P2POp(distributed.isend, x, right),
            distributed.P2POp(distributed.irecv, received, left),
        ]
        for work in distributed.batch_isend_irecv(pair):
            work.wait()

    kinds: dict[str, Callable[[], Any]] = {
        "sync": lambda: distributed.all_reduce(x),
        "async": lambda: distributed.all_reduce(x, async_op=True).wait(),
        "all_gather": lambda: distributed.all_gather(parts, x),
        "all_gather_into_tensor": lambda: distributed.all_gather_into_tensor(whole, x),
        "broadcast": lambda: distributed.broadcast(x, 0),
    }
    return {**kinds, "batch_isend_irecv": exchange} if ranks > 1 else kinds


def join(backend: str, rank: int, ranks: int) -> None:
    """Makes this process one of the ranks."""
    from torch import distributed

    if backend != "fake":
        distributed.init_process_group(backend)
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())


def contend(
    who: str,
    ops: list[str],
    rank: int,
    ranks: int,
    port: int,
    count: int,
    has_ddp: bool,
    backend: str,
    turns: Any,
    answers: Any,
) -> None:
    """One rank of one contender: at each turn a round of operations."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MSPROBE_LOG_LEVEL": "4"}
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    join(backend, rank, ranks)
    model: Any = torch.nn.Linear(4, 4)
    if has_ddp:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place = tempfile.mkdtemp(prefix="bench-collectives-")
    keep = watched(who, ops, model, optimizer, place)
    kinds = operations(rank, ranks)
    while (kind := turns.get()) is not None:
        operation = kinds[kind]
        distributed.barrier()
        begun = time.perf_counter()
        for _ in range(count):
            operation()
        took = (time.perf_counter() - begun) / count * 1e6
        # What the reducer of DDP asks of a bucket's work the backend `fake` does not give.
        with model.no_sync() if has_ddp and backend == "fake" else nullcontext():
            model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            answers.put(took)
    del keep
    # What was answered is with the one who asked; gloo may abort at the interpreter's exit, with or without a monitor.
    answers.close()
    answers.join_thread()
    os._exit(0)


class Contender:
    """The processes of one contender."""

    def __init__(
        self, who: str, ops: list[str], ranks: int, port: int, count: int, has_ddp: bool, backend: str
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers = context.Queue()
        self.turns = [context.Queue() for _ in range(ranks)]
        self.processes = [
            context.Process(
                target=contend,
                args=(who, ops, rank, ranks, port, count, has_ddp, backend, self.turns[rank], self.answers),
            )
            for rank in range(ranks)
        ]
        for one in self.processes:
            one.start()

    def take_turn(self, kind: str) -> float:
        """Microseconds per operation."""
        for turns in self.turns:
            turns.put(kind)
        took: float = self.answers.get(timeout=300)
        return took

    def end(self) -> None:
        """Ends them."""
        for turns in self.turns:
            turns.put(None)
        for one in self.processes:
            one.join(30)


def main() -> None:
    parser = argparse.ArgumentParser(description="What measuring adds to each collective operation.")
    parser.add_argument("--operations", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--ops", default=OPS)
    parser.add_argument("--port", type=int, default=29650)
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--backend", choices=("gloo", "fake"), default="gloo")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    all_kinds = operations(0, arguments.ranks)
    kinds = list(all_kinds) if arguments.kinds == "all" else arguments.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in all_kinds]:
        parser.error(f"--kinds: {', '.join(unknown)}: expected {', '.join(all_kinds)}")
    names = arguments.contenders.split(",")
    contenders = {
        who: Contender(
            who,
            arguments.ops.split(","),
            arguments.ranks,
            arguments.port + place,
            arguments.operations,
            arguments.ddp,
            arguments.backend,
        )
        for place, who in enumerate(names)
    }
    found: dict[str, dict[str, list[float]]] = {kind: {who: [] for who in names} for kind in kinds}
    for turn in range(arguments.rounds + 1):
        for kind in kinds:
            for who, contender in contenders.items():
                took = contender.take_turn(kind)
                if turn:
                    # The first round imports and compiles.
                    found[kind][who].append(took)
    for contender in contenders.values():
        contender.end()
    ddp = ", model in DDP" if arguments.ddp else ""
    measured = f"{arguments.ranks} rank(s), {arguments.backend}{ddp}, {arguments.ops}"
    print(f"{measured}; us per operation: medians of {arguments.rounds} rounds")
    for kind in kinds:
        tell(kind, found[kind])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1))


def tell(kind: str, times: dict[str, list[float]]) -> None:
    """Prints one kind of call, and whether the bounds are kept."""
    bare = times["none"]
    more = {
        who: statistics.median(took - without for took, without in zip(all_of, bare, strict=True))
        for who, all_of in times.items()
    }
    for who, all_of in times.items():
        median, added, least = statistics.median(all_of), more[who], min(all_of) - min(bare)
        part = added / more["msprobe"] if "msprobe" in more and who != "none" else None
        line = f"{kind:>22} {who:>8} {median:8.1f} ({min(all_of):.1f} to {max(all_of):.1f})"
        line += f"  added {added:7.2f} (least {least:.2f})"
        if part is not None:
            line += f"  {part:.4f} of msprobe's"
        if who == "times":
            line += f"  (bound {MOST_US} us: {'kept' if added <= MOST_US else 'BROKEN'})"
        if who == "tensors" and part is not None:
            line += f"  (bound {MOST_PART}: {'kept' if part <= MOST_PART else 'BROKEN'})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
