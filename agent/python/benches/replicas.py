"""What comparing copies costs: `replicas.py [--ranks 512] [--copies 10000] [--checks 20]`.

Ranks are threads, each with its own connection to one real TCPStore in a process of its own; no torch but the store.
Prints, for a clean run and for one in which one rank differs, calls and bytes by rank and check, the store's processor
time, the time from the first rank's showing to the last one's, memory; and the time of the fingerprints beside a bare
read of the same memory (of a release build only).
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

from support.ballots import Counted, Rank, close_all, wait_for


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


def waited(ranks: Sequence[Rank], count: Callable[[Counted], int], least: int) -> None:
    wait_for(lambda: all(count(rank.store) >= least for rank in ranks), 300)


def compare(how_many: int, copies: int, checks: int) -> None:
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    port = here.recv()
    before = resident_mib()
    ranks = [
        Rank(rank, range(how_many), distributed.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False))
        for rank in range(how_many)
    ]

    def asked() -> tuple[float, float, int]:
        here.send(True)
        found: tuple[float, float, int] = here.recv()
        return found

    fingerprints = list(range(copies))
    start_cpu, _, start_keys = asked()
    times = []
    for step in range(checks):
        start = time.monotonic()
        for rank in ranks:
            rank.show(step, fingerprints)
        waited(ranks, lambda store: store.calls.get("add", 0), step + 1)
        times.append(time.monotonic() - start)
    time.sleep(1.5)
    cpu, _, keys = asked()
    calls = sum(sum(rank.store.calls.values()) for rank in ranks) / how_many / checks
    sent = sum(rank.store.bytes for rank in ranks) / how_many / checks
    print(f"{how_many} ranks, {copies} copies, {checks} comparisons")
    print(f"  the same: {calls:.1f} calls and {sent:.0f} bytes by rank and comparison")
    print(f"  store: {(cpu - start_cpu) / checks * 1e3:.1f} ms of processor time, {keys - start_keys} keys left")
    print(f"  until every rank has shown: {statistics.median(times) * 1e3:.0f} ms, at most {max(times) * 1e3:.0f} ms")
    print(f"  memory of all ranks together: {resident_mib() - before:.0f} MiB more, connections included")

    told = [sum(rank.store.bytes for rank in ranks), sum(sum(rank.store.calls.values()) for rank in ranks)]
    start_cpu, _, _ = asked()
    start = time.monotonic()
    for number, rank in enumerate(ranks):
        shown = fingerprints if number != how_many // 2 else [*fingerprints[:-1], copies + 1]
        rank.show(checks, shown)
    wait_for(lambda: any(rank.voice.raised for rank in ranks), 180)
    took = time.monotonic() - start
    cpu, rss, _ = asked()
    more = [sum(rank.store.bytes for rank in ranks), sum(sum(rank.store.calls.values()) for rank in ranks)]
    sent_now, calls_now = (after - earlier for after, earlier in zip(more, told, strict=True))
    (message,) = [one for rank in ranks for _, _, one in rank.voice.raised]
    print(
        f"  one differs: named after {took:.1f} s, {calls_now / how_many:.1f} calls by rank, {sent_now / 2**20:.2f} MiB"
    )
    print(f"  store: {(cpu - start_cpu) * 1e3:.1f} ms of processor time, {rss:.0f} MiB resident at most")
    print(f"  {message}")
    close_all(ranks)
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
    parser.add_argument("--mib", type=int, default=512)
    asked = parser.parse_args()
    for ranks in asked.ranks:
        compare(ranks, asked.copies, asked.checks)
    fingerprints(asked.mib)


if __name__ == "__main__":
    main()
