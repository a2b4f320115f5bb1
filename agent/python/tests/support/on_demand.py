"""Trainings that are asked for captures, and what lies in the directories then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import trainmon
from support import control, tiny
from support.waiting import eventually

#: Steps a training makes at most while it waits for something.
PATIENCE = 4000


class Captured(NamedTuple):
    """One rank's files of one captured step."""

    entries: dict[str, Any]
    request: dict[str, Any]
    place: Path

    @property
    def steps_before(self) -> list[dict[str, Any]]:
        """The lines of what is known of the steps before."""
        lines = (self.place / "steps_before.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def captured(root: Path, step: int, rank: int = 0) -> Captured:
    """What lies in the directory of a step and rank."""
    place = root / f"step{step}" / f"rank{rank}"
    dump = json.loads((place / "dump.json").read_text())
    eventually((place / "request.json").is_file)
    return Captured(dump["data"], json.loads((place / "request.json").read_text()), place)


def steps_in(root: Path) -> list[int]:
    """The steps that have a directory."""
    return sorted(int(one.name.removeprefix("step")) for one in root.glob("step*"))


class Training:
    """A tiny GPT that is watched, one step at a time."""

    def __init__(self, output: Path, config: Any = None, **keys: Any) -> None:
        self.net = tiny.model()
        self.optimizer = tiny.optimizer_of(self.net)
        if not isinstance(config, str | Path):
            usual = {"wg_distribution": True, "ops": ["norm"], "queue_steps": 4096, "output_dir": str(output)}
            config = usual | dict(config or {})
        self.watch = trainmon.watch(self.net, self.optimizer, config=config, quiet=True, **keys)
        self.step = 0
        self.losses: list[float] = []

    @property
    def captures(self) -> Path:
        """Where captures go."""
        directory = self.watch.monitor.run_directory
        assert directory is not None
        return Path(directory) / "captures"

    @property
    def control(self) -> Path:
        """The directory with the socket."""
        directory = self.watch.monitor.rank_directory
        assert directory is not None
        return Path(directory)

    def make_step(self, scale: float = 1.0) -> None:
        """One step; its loss is multiplied by `scale`."""
        self.optimizer.zero_grad()
        loss = tiny.loss_of(self.net, self.step, 0)
        if scale != 1:
            loss = loss * scale
        loss.backward()
        self.watch.log(loss=loss)
        self.optimizer.step()
        self.losses.append(float(loss.detach()))
        self.step += 1

    def until(self, condition: Callable[[], Any]) -> Any:
        """Trains until the condition is true."""
        for _ in range(PATIENCE):
            found = condition()
            if found:
                return found
            self.make_step()
        raise AssertionError("trained in vain")

    def status(self) -> dict[str, Any]:
        """What `ctl status` shows of it."""
        status: dict[str, Any] = control.ask(self.control, "GET", "/status")
        return status

    def capture_of(self, number: int) -> dict[str, Any] | None:
        """A capture by the number of its request, once it is over."""
        for one in self.status()["captures"]:
            if one["id"] == number and one["stage"] in ("done", "failed"):
                found: dict[str, Any] = one
                return found
        return None

    def dump(self, **request: Any) -> dict[str, Any]:
        """Orders a capture and trains until it is over."""
        number = control.ask(self.control, "POST", "/dump", json.dumps(request))["id"]
        found: dict[str, Any] = self.until(lambda: self.capture_of(number))
        return found

    def parameters(self) -> list[torch.Tensor]:
        """What was trained."""
        return [one.detach().clone() for one in self.net.parameters()]
