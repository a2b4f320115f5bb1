"""Runs the parts one after the other, each in a process of its own, and gathers what they found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_kit.machine import card
from device_kit.part import Part
from device_kit.report import Row, rows_of
from device_kit.wheels import Places, unpack

#: The folder that this package lies in: that of the kit, or of a checkout.
ROOT = Path(__file__).resolve().parent.parent

#: How long all parts together may take: six minutes, less the writing.
USUAL_SECONDS = 355.0

#: How long importing torch may take, and how long one that is told to end may take for that.
_PATIENCE_S = 120.0
_LAST_WORDS_S = 5.0

#: The last lines of what a part that failed said.
_LINES = 12


@dataclass(slots=True)
class Outcome:
    """Everything a run of the kit found."""

    facts: dict[str, Any] = field(default_factory=dict)
    titles: dict[str, list[str]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether every check that ran held, and nothing failed."""
        return not any(row.verdict in ("BROKEN", "FAILED") for row in self.rows)


@dataclass(slots=True)
class Process:
    """A part that was started, and waits for being told to begin."""

    part: Part
    popen: subprocess.Popen[bytes]
    rows: Path
    said: Path


class Driver:
    """One run of the kit."""

    def __init__(
        self, parts: Sequence[Part], out: Path, seconds: float, tell: Callable[[Outcome], object], *, is_dry: bool
    ) -> None:
        """`tell` is given what is known after each part, for the call may be cut short."""
        self._parts = parts
        self._tell = tell
        self._out = out
        self._deadline = time.monotonic() + seconds
        # Who gives all of them more time gives each more.
        self._generosity = max(1.0, seconds / USUAL_SECONDS)
        self._is_dry = is_dry
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Runs all parts. Raises only where the output directory cannot be written."""
        (self._out / "parts").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="device_kit_", ignore_cleanup_errors=True) as place:
            scratch = Path(place)
            places = unpack(ROOT / "wheels", scratch)
            why = self._look_around(scratch, places)
            if why is None:
                self._run_parts(scratch, places)
            else:
                self._skip_all(why)
        return self._outcome

    def _look_around(self, scratch: Path, places: Places) -> str | None:
        """Learns what the machine is and what the parts would measure. Gives why no part can run here, if none can."""
        started = time.monotonic()
        command = [sys.executable, "-m", "device_kit.machine", *map(str, places.last)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=min(_PATIENCE_S, self._left()),
                cwd=scratch,
                env=self._environment(places),
                check=False,
            )
            said = done.stdout if done.returncode == 0 else json.dumps({"failed": _last_lines(done.stderr, 1)})
            found: dict[str, Any] = json.loads(said)
        except (subprocess.TimeoutExpired, ValueError, OSError) as error:
            found = {"failed": f"what this machine is cannot be told: {error}"}
        self._outcome.seconds["machine"] = time.monotonic() - started
        why = str(found.get("failed", ""))
        if why:
            self._outcome.titles = {part.name: [part.name] for part in self._parts}
            self._add("machine", "torch", "FAILED", why)
            return "torch cannot be imported"
        self._outcome.facts = {**found["facts"], "nvidia-smi before": card()}
        self._outcome.titles = found["titles"]
        return None if self._is_dry else found["facts"]["no device"]

    def _skip_all(self, why: str) -> None:
        for part in self._parts:
            self._skip(part, why)

    def _skip(self, part: Part, why: str) -> None:
        for title in self._outcome.titles[part.name]:
            self._add(part.name, title, "skipped", why)

    def _add(self, part: str, what: str, verdict: str, detail: str) -> None:
        self._outcome.rows.append(Row(part, what, None, "", verdict, detail))

    def _run_parts(self, scratch: Path, places: Places) -> None:
        """Each part is started while the one before it runs: importing torch takes seconds."""
        waiting: Process | None = None
        try:
            for part, following in zip(self._parts, [*self._parts[1:], None], strict=True):
                if self._left() <= 0:
                    self._skip(part, "no time left")
                    continue
                process = waiting or self._start(part, scratch, places)
                waiting = None if following is None else self._start(following, scratch, places)
                self._run_one(process)
                self._tell(self._outcome)
        finally:
            if waiting is not None:
                _end(waiting)
        self._outcome.facts["nvidia-smi after"] = card()

    def _start(self, part: Part, scratch: Path, places: Places) -> Process:
        own = scratch / part.name
        own.mkdir()
        rows, said = (self._out / "parts" / f"{part.name}.{ending}" for ending in ("jsonl", "txt"))
        rows.unlink(missing_ok=True)
        words = ["--device", "cpu" if self._is_dry else "cuda", "--rows", rows.resolve(), "--scratch", own]
        for place in places.last:
            words += ["--last", place]
        with said.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "device_kit.one_part", part.name, *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=own,
                env=self._environment(places),
                # What a part starts is ended with it.
                start_new_session=True,
            )
        return Process(part, popen, rows, said)

    def _run_one(self, process: Process) -> None:
        part, began = process.part, time.monotonic()
        patience = began + min(_PATIENCE_S, self._left())
        while not process.rows.exists() and process.popen.poll() is None and time.monotonic() < patience:
            time.sleep(0.01)
        limit = min(part.seconds * self._generosity, self._left())
        sys.stderr.write(f"device kit: {part.name}: at most {limit:.0f} s\n")
        sys.stderr.flush()
        failed = None
        assert process.popen.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already, and its exit status tells
            process.popen.stdin.write(b"begin\n")
            process.popen.stdin.flush()
        try:
            status = process.popen.wait(limit)
            if status != 0:
                failed = f"ended with {_named(status)}"
        except subprocess.TimeoutExpired:
            failed = f"not done after {limit:.0f} s, and ended"
        _end(process)
        self._outcome.seconds[part.name] = time.monotonic() - began
        rows = rows_of(process.rows)
        self._outcome.rows += rows
        if failed is not None:
            said = process.said.read_text(errors="replace")
            self._add(part.name, part.name, "FAILED", f"{failed}\n{_last_lines(said, _LINES)}".rstrip())
        elif not rows:
            self._add(part.name, part.name, "FAILED", "it ended without a word")

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _environment(self, places: Places) -> dict[str, str]:
        own = {"PYTHONPATH": places.python_path(ROOT, os.environ.get("PYTHONPATH")), "TRAINMON_QUIET": "1"}
        if self._is_dry:
            # Sizes are small, and the next part is started on the other core.
            own["OMP_NUM_THREADS"] = "1"
        return {**os.environ, **own}


def _end(process: Process) -> None:
    """Ends a part and whatever it started. Rows that were written are kept."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver: it is left behind
        process.popen.wait(_LAST_WORDS_S)
    if process.popen.stdin is not None:
        with contextlib.suppress(OSError):
            process.popen.stdin.close()


def _named(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"


def _last_lines(text: str, count: int) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def facts_of_kit() -> dict[str, Any]:
    """What was written when the kit was made; nothing in a checkout."""
    file = ROOT / "facts.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found
