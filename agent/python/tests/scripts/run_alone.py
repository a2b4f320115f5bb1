"""What `python -m trainmon run` meets, in one: `run_alone.py KIND [ARGUMENT...]`.

Kinds: plain, raise, exit, at_once, terminated, none, two, children.
"""

# ruff: noqa: E402 - the environment is set before torch is imported

import os
import sys

started_with_torch = "torch" in sys.modules
os.environ["SET_BEFORE_TORCH"] = "1"

import multiprocessing
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from torch import nn

from support import tiny


class OfMain:
    """Lives in `__main__`; children must find it there."""

    def __init__(self, number: int) -> None:
        self.number = number


def double(one: OfMain) -> OfMain:
    return OfMain(2 * one.number)


def plain() -> None:
    net, optimizer = tiny.training()
    with torch.no_grad():
        tiny.loss_of(net, 0, 0)
    tiny.train(net, optimizer, 3)
    print("parameters", sum(float(one.detach().double().abs().sum()) for one in net.parameters()))


def two() -> None:
    """A generator and a discriminator; the second one's halves are called one by one."""
    generator, halves = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 1)])
    first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (generator, halves))
    for _ in range(2):
        for optimizer in (second, first):
            optimizer.zero_grad()
            halves[1](torch.relu(halves[0](generator(torch.ones(2, 4))))).sum().backward()
            optimizer.step()


def main() -> None:
    print(sys.argv[1:], __name__, Path(__file__).name, Path(sys.path[0]).name, started_with_torch)
    print(sys.modules["__main__"].OfMain is OfMain, __package__, type(__spec__).__name__)
    kind = sys.argv[1]
    if kind in ("plain", "raise", "exit", "at_once", "terminated"):
        plain()
    if kind == "at_once":
        os._exit(5)
    if kind == "terminated":
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if kind == "raise":
        raise ValueError("the script's own")
    if kind == "exit":
        # A handler of the script's own is the one that counts.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
    if kind == "two":
        two()
    if kind == "children":
        plain()
        for way in ("fork", "spawn"):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(way)) as pool:
                print(way, pool.submit(double, OfMain(21)).result().number)


if __name__ == "__main__":
    main()
