"""The extension module at its edges: import, the interpreter's end, forks, signals."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forks, runs
from support.environment import ENVIRONMENT
from support.ranks import run_alone
from trainmon._trainmon import Monitor, ParsedConfig

# A hang is a failure: far beyond what any of these programs takes.
PATIENCE_S = 120

START = """
import json, os, sys, threading
import torch
from trainmon._trainmon import KINDS, Monitor, ParsedConfig
GRAD = KINDS.index("grad_reduced")
heard = []
def listener(severity, message, hint):
    heard.append(message)
    print("heard:", message, flush=True)
def start(**arguments):
    config = {"targets": {}, "format": "csv", "ops": ["norm"], "wg_distribution": True}
    monitor = Monitor.start(ParsedConfig(json.dumps(config)), rank=0, output_dir=sys.argv[1], **arguments)
    identity = monitor.register("it", 0)
    return monitor, identity
def train(monitor, identity, steps):
    for _ in range(steps):
        monitor.observe(identity, GRAD, 0, torch.ones(4))
        monitor.end_step()
def break_the_output(monitor):
    # The exporter may be making the run directory anew at any moment.
    directory = dict(monitor.locations())["csv"][0]
    for attempt in range(1000):
        try:
            open(directory, "x").close()
            return
        except FileExistsError:
            os.rename(directory, f"{directory}.{attempt}")
    raise AssertionError("the exporter was always quicker")
"""


def run(program: str, output: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; a crash or a hang fails the test."""
    done = forks.run(["-c", START + textwrap.dedent(program), str(output)], ENVIRONMENT, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "Fatal Python error" not in done.stderr
    return done


def rows(output: Path) -> list[str]:
    tables = list(runs.run_directory(output, 0).glob("grad_reduced_*.csv"))
    assert tables
    return [row for table in tables for row in table.read_text(encoding="utf-8").splitlines()[1:]]


def test_the_import_brings_neither_torch_nor_anything_large() -> None:
    program = "import sys; before = set(sys.modules); import trainmon._trainmon; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    brought = {name.partition(".")[0] for name in done.stdout.split()}
    assert "trainmon" in brought
    assert brought.isdisjoint({"torch", "numpy", "pandas", "msprobe", "asyncio", "json", "typing_extensions"})


def test_what_is_queued_when_the_interpreter_ends_is_delivered(tmp_path: Path) -> None:
    # The cycle keeps the object from ever being dropped: only the interpreter's end can shut it down.
    run("monitor, identity = start(); keep = [monitor]; keep.append(keep); train(monitor, identity, 10)", tmp_path)
    assert sum("it" in row for row in rows(tmp_path)) == 10


def test_a_dropped_monitor_delivers_too(tmp_path: Path) -> None:
    done = run("monitor, identity = start(); train(monitor, identity, 3); del monitor; print('gone')", tmp_path)
    assert "gone" in done.stdout
    assert sum("it" in row for row in rows(tmp_path)) == 3


@pytest.mark.parametrize(
    "end", ["del monitor", "monitor.shutdown()", "pass", "sys.exit(0)", "pending = monitor.pending_step(); del monitor"]
)
def test_an_exporter_that_fails_at_the_end_is_heard_and_nobody_waits_for_it(tmp_path: Path, end: str) -> None:
    program = """
        monitor, identity = start(listener=listener)
        train(monitor, identity, 3)
        break_the_output(monitor)
        train(monitor, identity, 3)
    """
    done = run(textwrap.dedent(program) + end, tmp_path)
    assert "heard: csv:" in done.stdout


def test_a_listener_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    program = """
        entered = threading.Event()
        def stuck(*_):
            entered.set()
            threading.Event().wait()
        monitor, identity = start(listener=stuck)
        threading.Thread(target=monitor.say, args=("warning", "hello"), daemon=True).start()
        entered.wait()
        train(monitor, identity, 3)
    """
    run(program, tmp_path)
    assert sum("it" in row for row in rows(tmp_path)) == 3


def test_a_word_after_the_end_goes_to_standard_error(tmp_path: Path) -> None:
    program = """
        import atexit
        late = []
        # Registered before the first monitor: called after the extension's own end.
        atexit.register(lambda: late[0].say("warning", "too late for a listener"))
        monitor, identity = start(listener=listener)
        late.append(monitor)
    """
    done = run(program, tmp_path)
    assert "too late for a listener" in done.stderr and "heard" not in done.stdout


def test_a_forked_child_ends_in_peace(tmp_path: Path) -> None:
    program = """
        monitor, identity = start(listener=listener)
        train(monitor, identity, 2)
        child = os.fork()
        train(monitor, identity, 3)
        if child == 0:
            del monitor
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    run(program, tmp_path)
    assert sum("it" in row for row in rows(tmp_path)) == 5


@pytest.mark.parametrize("way", ["bare", "watched"])
def test_what_a_signals_handler_raises_reaches_the_host_wherever_a_watched_step_is(tmp_path: Path, way: str) -> None:
    """A third are raised while native code asks Python for an operation's line. What is asked holds without a watch."""
    said = run_alone("asked_to_end.py", tmp_path, 300, way)
    assert "ended 300 of 300" in said, said
    assert "is off from now on" not in said, said


def told_by(listener: Callable[..., None], directory: Path) -> Monitor:
    """A monitor with this listener."""
    return Monitor.start(
        ParsedConfig('{"targets": {}, "format": "csv", "wg_distribution": true}'),
        rank=0,
        output_dir=str(directory),
        listener=listener,
    )


def test_an_exit_inside_a_listener_reaches_the_host_as_it_was_raised(tmp_path: Path) -> None:
    own = SystemExit("the reason")

    def asked_to_end(*_: object) -> None:
        raise own

    monitor = told_by(asked_to_end, tmp_path)

    def host() -> None:
        monitor.say("info", "hello")
        for _ in range(1000):
            pass

    with pytest.raises(SystemExit) as raised:
        host()
    assert raised.value is own
    # What another thread ends with ends nobody else.
    other = threading.Thread(target=monitor.say, args=("info", "hello"))
    other.start()
    other.join()
    assert sum(1 for _ in range(1000)) == 1000
    with contextlib.suppress(SystemExit):
        monitor.shutdown()
        sum(1 for _ in range(1000))


def test_an_interrupt_inside_a_listener_reaches_the_host(tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monitor = told_by(interrupted, tmp_path)

    def host() -> None:
        monitor.say("info", "hello")
        # Python looks for signals between its own instructions.
        for _ in range(1000):
            pass

    # Whoever started the tests in the background has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            host()
    finally:
        signal.signal(signal.SIGINT, before)
    monitor.shutdown()
