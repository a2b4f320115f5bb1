"""The command `trainmon` of the Python package: the program's commands, and `run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainmon
from support import command, runs
from support.environment import modules_in
from support.ranks import SCRIPTS
from trainmon._trainmon import run_program

#: What pip writes as `bin/trainmon`.
SCRIPT = "import sys\nfrom trainmon.__main__ import main\nsys.exit(main())\n"

#: Far beyond what any of these takes.
PATIENCE_S = 120

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("bin") / "trainmon"
    path.write_text(SCRIPT)
    return [sys.executable, str(path)]


@pytest.fixture(params=["trainmon", "python -m trainmon"])
def way(request: pytest.FixtureRequest, script: list[str]) -> tuple[str, list[str]]:
    """What the program is called, and how it is started."""
    return request.param, script if request.param == "trainmon" else [sys.executable, "-m", "trainmon"]


def run(start: list[str], *arguments: object, **options: Any) -> Done:
    line = [*start, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)


def test_help_lists_every_command_under_the_name_it_was_called_by(way: tuple[str, list[str]]) -> None:
    name, start = way
    helped = run(start, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert f"Usage: {name} <COMMAND>" in helped.stdout
    commands = {line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ") and line.strip()}
    assert {"run", "check-config", "compare", "recover", "ctl", "completions"} <= commands
    nothing = run(start)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    unknown = run(start, "compare", "--no-such-option")
    assert unknown.returncode == 2
    assert f"Usage: {name} compare" in unknown.stderr


def test_version_is_the_package_s(way: tuple[str, list[str]]) -> None:
    done = run(way[1], "--version")
    assert (done.returncode, done.stdout) == (0, f"trainmon {trainmon.__version__}\n")


def test_help_of_run_is_python_s_whichever_way_it_is_asked_for(way: tuple[str, list[str]]) -> None:
    name, start = way
    asked = [run(start, *words) for words in (["run", "--help"], ["help", "run"])]
    assert asked[0].stdout == asked[1].stdout
    assert asked[0].stdout.startswith(f"usage: {name} run [options] [--] SCRIPT")
    refused = run(start, "run", "--config", os.devnull, "-m", "no_such_module_anywhere")
    assert refused.returncode == 2


def test_a_command_is_the_program_s(way: tuple[str, list[str]], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"wg_distribution": true}')
    bad.write_text('{"wg_distribution": 1}')
    for arguments in (["check-config", good], ["check-config", bad], ["check-config", "--json", bad]):
        ours, programs = run(way[1], *arguments), command.trainmon(*arguments)
        assert (ours.returncode, ours.stdout, ours.stderr) == (programs.returncode, programs.stdout, programs.stderr)


def test_run_of_the_script_is_that_of_python_m(script: list[str], tmp_path: Path) -> None:
    config = tmp_path / "monitor.json"
    config.write_text(json.dumps({"format": "csv", "output_dir": str(tmp_path / "out"), "wg_distribution": True}))
    alone = str(SCRIPTS / "run_alone.py")
    told = {"PYTHONPATH": modules_in(SCRIPTS.parent), "OMP_NUM_THREADS": "1", "TRAINMON_QUIET": "1"}
    options = {"env": {**os.environ, **told}, "cwd": SCRIPTS}
    with_us = run(script, "run", "--config", config, alone, "exit", "--config", "its own", **options)
    without = run([sys.executable], alone, "exit", "--config", "its own", **options)
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (7, without.stdout, without.stderr)
    assert len(runs.steps(runs.run_directory(tmp_path / "out", 0))) == 3


def test_no_command_but_run_imports_torch(script: list[str]) -> None:
    ask = "import atexit, sys; atexit.register(lambda: sys.stderr.write(str('torch' in sys.modules)))\n"
    done = run([sys.executable, "-c", ask + SCRIPT], "config-schema")
    assert (done.returncode, done.stderr) == (0, "False")


def test_completions_are_those_of_every_command(way: tuple[str, list[str]]) -> None:
    done = run(way[1], "completions", "bash")
    assert done.returncode == 0
    assert "complete -F _trainmon" in done.stdout
    for option in ("--config", "--name", "--quiet", "--grad-acc-steps", "--output-dir"):
        assert option in done.stdout


def test_ctrl_c_ends_it_at_once(way: tuple[str, list[str]], tmp_path: Path) -> None:
    # Nobody ever writes: it waits for the other end in a system call.
    endless = tmp_path / "endless.json"
    os.mkfifo(endless)
    # A process in the background ignores it, and so would what it starts.
    terminal = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", terminal, *way[1], "check-config", str(endless)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # Once the reader is there the other end can be opened: from then on the program reads.
    with endless.open("w"):
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=PATIENCE_S)
    assert (started.returncode, said) == (-signal.SIGINT, "")


def test_a_reader_that_went_away_is_no_error(way: tuple[str, list[str]]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*way[1], "config-schema"], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_stdout_takes_nothing_that_is_meant_for_a_file(way: tuple[str, list[str]], tmp_path: Path) -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", *way[1]]
    done = run(shell, "config-schema")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_caller_keeps_its_interrupts(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert run_program(["a caller", "no-such-command"]) == 2
    assert signal.getsignal(signal.SIGINT) is before
    assert "Usage: a caller <COMMAND>" in capfd.readouterr().err
