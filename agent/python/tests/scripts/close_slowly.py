"""A training whose collector accepts connections and never answers: its end would wait for a minute.

`close_slowly.py PLACE WAY`: `close` closes the watch, `exit` leaves that to the interpreter's end, `lane` waits for a
device.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import torch

import trainmon

PATIENCE_MS = 60_000


def never_answering() -> str:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(8)
    kept: list[Any] = []

    def accept() -> None:
        while True:
            kept.append(server.accept())

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def main(place: Path, way: str) -> None:
    # Whoever started the tests in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    config = {
        "wg_distribution": True,
        "ops": ["norm"],
        "format": ["csv", "otlp"],
        "otlp": {"endpoint": never_answering(), "timeout_ms": PATIENCE_MS},
        "shutdown_timeout_ms": PATIENCE_MS,
    }
    watch = trainmon.watch(net, optimizer, config=config, output_dir=str(place))
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    if way == "lane":
        watch.measurer.finish = lambda seconds: threading.Event().wait(seconds)  # type: ignore[method-assign]
    print("closing", flush=True)
    if way != "exit":
        watch.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
