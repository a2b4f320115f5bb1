"""What comparing copies costs: `replicas.py [--ranks 512] [--copies 10000] [--checks 20] [--processes 8]`.

Ranks are threads of several processes, each with its own connection to one real TCPStore in a process of its own; no
torch but the store. Prints, for a clean run and for one in which one rank differs, calls and bytes by rank and check,
the store's processor time, the time from the first rank's showing to the last one's, memory; and the time of the
fingerprints beside a bare read of the same memory (of a release build only).
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import torch
from torch import distributed

from support.simulated_ranks import Counted, Rank, close_all
from support.waiting import eventually


def serve(pipe: Any) -> None:
    """The store, as rank 0's process has it."""
    store = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    pipe.send(store.port)
    while pipe.recv():
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, store.num_keys()))


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class Worker:
    """A process with some of the ranks."""

    def __init__(self, ranks: Sequence[int], how_many: int, port: int, copies: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        context.Process(target=work, args=(there, ranks, how_many, port, copies), daemon=True).start()

    def order(self, *what: Any) -> None:
        self._pipe.send(what)

    def answer(self) -> Any:
        return self._pipe.recv()


def work(pipe: Any, numbers: Sequence[int], how_many: int, port: int, copies: int) -> None:
    """Does what it is told to, until it is told to end."""
    before = resident_mib()
    ranks = [
        Rank(rank, range(how_many), distributed.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False))
        for rank in numbers
    ]
    same = list(range(copies))
    pipe.send(True)
    while (what := pipe.recv())[0] != "end":
        if what[0] == "show":
            _, step, other = what
            for number, rank in zip(numbers, ranks, strict=True):
                rank.show(step, [*same[:-1], copies + 1] if number == other else same)
            waited(ranks, lambda store: store.calls.get("compare_set", 0), step + 1)
            pipe.send(True)
        elif what[0] == "raised":
            pipe.send([one for rank in ranks for _, _, one in rank.voice.raised])
        else:
            calls = sum(sum(rank.store.calls.values()) for rank in ranks)
            pipe.send((calls, sum(rank.store.bytes for rank in ranks), resident_mib() - before))
    close_all(ranks)
    pipe.send(True)


def waited(ranks: Sequence[Rank], count: Callable[[Counted], int], least: int) -> None:
    eventually(lambda: all(count(rank.store) >= least for rank in ranks), within=300)


def of_all(workers: Sequence[Worker], *what: Any) -> list[Any]:
    """Every process does it at once."""
    for worker in workers:
        worker.order(*what)
    return [worker.answer() for worker in workers]


def named(workers: Sequence[Worker]) -> tuple[float, str]:
    """How long from now on until some rank has told what differs."""
    start = time.monotonic()
    while time.monotonic() - start < 300:
        found = [message for messages in of_all(workers, "raised") for message in messages]
        if found:
            return time.monotonic() - start, found[0]
        time.sleep(0.05)
    raise RuntimeError("nobody told what differs")


def compare(how_many: int, copies: int, checks: int, processes: int) -> None:
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    port = here.recv()
    workers = [Worker(range(first, how_many, processes), how_many, port, copies) for first in range(processes)]
    for worker in workers:
        worker.answer()

    def asked() -> tuple[float, float, int]:
        here.send(True)
        found: tuple[float, float, int] = here.recv()
        return found

    def traffic() -> tuple[int, int, float]:
        calls, sent, memory = (sum(of) for of in zip(*of_all(workers, "traffic"), strict=True))
        return calls, sent, memory

    start_cpu, _, start_keys = asked()
    times = []
    for step in range(checks):
        start = time.monotonic()
        of_all(workers, "show", step, None)
        times.append(time.monotonic() - start)
    time.sleep(1.5)
    cpu, _, keys = asked()
    calls, sent, memory = traffic()
    each = how_many * checks
    print(f"{how_many} ranks, {copies} copies, {checks} comparisons, {processes} processes")
    print(f"  the same: {calls / each:.1f} calls and {sent / each:.0f} bytes by rank and comparison")
    print(f"  store: {(cpu - start_cpu) / checks * 1e3:.1f} ms of processor time, {keys - start_keys} keys left")
    print(f"  until every rank has shown: {statistics.median(times) * 1e3:.0f} ms, at most {max(times) * 1e3:.0f} ms")
    print(f"  memory of all ranks together: {memory:.0f} MiB more, connections included")

    start_cpu, _, _ = asked()
    of_all(workers, "show", checks, how_many // 2)
    took, message = named(workers)
    cpu, rss, _ = asked()
    more_calls, more_sent, _ = traffic()
    by_rank, mib = (more_calls - calls) / how_many, (more_sent - sent) / 2**20
    print(f"  one differs: named {took:.1f} s after all have shown, {by_rank:.1f} calls by rank, {mib:.2f} MiB")
    print(f"  store: {(cpu - start_cpu) * 1e3:.1f} ms of processor time, {rss:.0f} MiB resident at most")
    print(f"  {message}")
    of_all(workers, "end")
    here.send(False)


def fingerprints(mib: int) -> None:
    """Beside a bare read of the same memory, in turns."""
    import trainmon
    from trainmon._trainmon import read_only_pass

    monitor = trainmon.watch(torch.nn.Linear(1, 1), None, config={"wg_distribution": True, "format": []}).monitor
    tensors = [torch.randn(mib * 2**20 // 4 // 64) for _ in range(64)]

    def timed(body: Callable[[], Any]) -> float:
        start = time.perf_counter()
        body()
        return time.perf_counter() - start

    rounds = [
        (timed(lambda: [read_only_pass(one) for one in tensors]), timed(lambda: monitor.fingerprints(tensors)))
        for _ in range(15)
    ]
    bare, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(f"fingerprints of {mib} MiB: {ours * 1e3:.1f} ms, a bare read {bare * 1e3:.1f} ms, ratio {ours / bare:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--copies", type=int, default=10_000)
    parser.add_argument("--checks", type=int, default=20)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--mib", type=int, default=512)
    asked = parser.parse_args()
    for ranks in asked.ranks:
        compare(ranks, asked.copies, asked.checks, asked.processes)
    if asked.mib:
        fingerprints(asked.mib)


if __name__ == "__main__":
    main()
