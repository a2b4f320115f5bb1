"""Speaks to a run's unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from support.waiting import eventually


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        # A socket's address has 107 characters at most; its path may have more.
        directory = os.open(self._path.parent, os.O_PATH)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def ask(control: Path, method: str, path: str, body: str = "") -> Any:
    """What the run with this control directory answers."""
    connection = Connection(control / "control.sock")
    connection.request(method, path, body.encode())
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status < 300, answer
    return answer


def order(control: Path, path: str, body: dict[str, Any] | None = None, *, stage: str = "agreed") -> int:
    """Orders a change, waits until it is as far, and gives its step."""
    number = ask(control, "POST", path, "" if body is None else json.dumps(body))["id"]
    return wait_for(control, number, stage)


def wait_for(control: Path, number: int, stage: str) -> int:
    """Waits until a change is as far, and gives its step."""

    def reached() -> Any:
        changes = {change["id"]: change for change in ask(control, "GET", "/status")["changes"]}
        change = changes.get(number, {"stage": None})
        assert change["stage"] != "withdrawn", change
        return change if change["stage"] in (stage, "switched") else None

    change = eventually(reached, within=120)
    assert change["late"] == [], change
    step: int = change["step"]
    return step
