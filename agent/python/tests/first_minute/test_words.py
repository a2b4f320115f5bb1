"""It speaks at the beginning and at the end."""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import trainmon
from support import command, forks, runs
from support.environment import modules_in
from support.first_minute import GRADIENTS, Said, train
from support.ranks import SCRIPTS
from support.waiting import eventually


def test_it_says_what_is_measured_where_files_are_and_how_it_ended(
    model: nn.Module, optimizer: Any, here: Path, said: Said
) -> None:
    with trainmon.watch(model, optimizer, name="first", prometheus={"port": 0}, control={}) as watch:
        beginning = said()
        train(model, optimizer, 3)
        assert said() == "", "not a word in between"
    end = said()
    lines = beginning.splitlines()
    assert lines[0] == (
        "trainmon: measures weight gradients, moments, parameters of 4 parameters; min max mean norm nans; every step"
    )
    assert watch.monitor.run_name == "first"
    directory = watch.monitor.run_directory
    assert directory is not None and directory.endswith("first") and Path(directory).is_dir()
    assert lines[1] == f"  files: {directory}"
    assert lines[2].startswith("  page: http://127.0.0.1:")
    page = lines[2].partition(": ")[2].partition(",")[0]
    assert lines[3:] == [
        f"  to watch it: trainmon top {page}",
        f"  to compare it with another run: trainmon compare {directory} OTHER_RUN",
        f"  to query its status: trainmon ctl {directory} status",
    ]
    assert end.startswith("trainmon: ended before step 3: observed ")
    assert "records delivered" in end and "\n  cost: " in end
    watch.close()
    assert said() == "", "once"


def test_the_commands_that_are_named_exist(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.program()
    # The path of a socket has 107 characters at most.
    place = tempfile.TemporaryDirectory()
    monkeypatch.chdir(place.name)
    with place, trainmon.watch(model, optimizer, control={}):
        train(model, optimizer)
        # The files have a thread of their own.
        eventually(lambda: any(Path("monitor_output/latest/rank_0").glob("grad_reduced_*.csv")))
        commands = [line.partition(": ")[2] for line in said().splitlines() if ": trainmon " in line]
        for line in commands:
            words = shlex.split(line)[1:]
            words = [words[1] if word == "OTHER_RUN" else word for word in words]
            # Here is no terminal.
            words += ["--once"] if words[0] == "top" else []
            done = command.trainmon(*words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert len(commands) == 3


@pytest.mark.parametrize(
    "way", ["argument", "environment", "neither", "argument over environment", "config over environment"]
)
def test_the_page_is_served_where_it_is_asked_for_and_its_address_is_said(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("TRAINMON_PAGE", "0" if way in ("argument", "neither") else "1")
    page = {"argument": True, "argument over environment": False}.get(way)
    config = {**GRADIENTS, "page": False} if way == "config over environment" else None
    keys = {"prometheus": {"port": 0, "page": False}} if page or way == "environment" else {}
    with trainmon.watch(model, optimizer, config=config, page=page, **keys):
        train(model, optimizer)
        found = re.search(r"page: (http://127.0.0.1:\d+/), ", text := said())
        assert (found is not None) == (way in ("argument", "environment")), text
        if found:
            with urllib.request.urlopen(found[1]) as answer:
                assert b"<title>" in answer.read()
            assert f"to watch it: trainmon top {found[1]}" in text
        else:
            assert "http" not in text and "to watch it: trainmon top ./monitor_output/" in text


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_quiet_leaves_warnings_only(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "environment":
        monkeypatch.setenv("TRAINMON_QUIET", "1")
    with trainmon.watch(model, optimizer, quiet=way == "argument", targets={"2.wieght": {}}):
        train(model, optimizer)
    lines = said().splitlines()
    assert len(lines) == 2 and lines[0].startswith("trainmon: warning: `targets`"), lines


def test_other_ranks_say_warnings_only(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with trainmon.watch(model, optimizer, config={**GRADIENTS, "targets": {"nothing": {}}}):
        train(model, optimizer)
    lines = said().splitlines()
    assert [line.startswith("trainmon: warning: ") for line in lines] == [True, False], lines
    assert "in the model on rank 1" in lines[0]


@pytest.fixture(params=["root", "trainmon"])
def records(request: pytest.FixtureRequest) -> Iterator[list[logging.LogRecord]]:
    """What a handler hears that the script has put on a logger."""
    heard: list[logging.LogRecord] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    logger = logging.getLogger(None if request.param == "root" else "trainmon")
    handler, level = Listening(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield heard
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_where_the_script_logs_the_words_go_there(
    model: nn.Module, optimizer: Any, said: Said, records: list[logging.LogRecord]
) -> None:
    with trainmon.watch(model, optimizer, targets={"2": {}, "3.weight": {}}):
        train(model, optimizer)
    assert said() == ""
    assert {record.name for record in records} == {"trainmon"}
    levels = [record.levelno for record in records]
    assert levels == [logging.WARNING, logging.INFO, logging.INFO]
    texts = [record.getMessage() for record in records]
    assert texts[0].startswith("`targets`: `3.weight` matches nothing in the model\n  hint: ")
    assert texts[1].startswith("measures ") and texts[2].startswith("ended before step 2: ")


def test_a_logger_that_a_config_disables_does_not_swallow_the_words(
    model: nn.Module, optimizer: Any, said: Said, records: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `logging.config.dictConfig` does to all that it does not name.
    monkeypatch.setattr(logging.getLogger("trainmon"), "disabled", True)
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        train(model, optimizer)
    assert said().count("trainmon: measures ") == 1 and not records


def test_a_handler_that_fails_is_not_in_the_way(model: nn.Module, optimizer: Any, said: Said) -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left on device")

    logger, handler = logging.getLogger("trainmon"), Failing()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with trainmon.watch(model, optimizer):
            train(model, optimizer)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert said().count("trainmon: measures ") == 1, "what nobody heard is said on standard error"


SHORT = """
import sys, torch, trainmon
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters())
{watching}
for step in range(2):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
{ending}
print("trained")
"""

ENDINGS = {
    "nothing": "",
    "os._exit": "print('trained', flush=True); import os; os._exit(0)",
    "SIGTERM": "print('trained', flush=True); import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); "
    "time.sleep(60)",
}


def python(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": modules_in(SCRIPTS.parent), "OMP_NUM_THREADS": "1", **environment}
    variables.pop("TRAINMON_QUIET", None)
    return forks.run([*arguments, str(script)], variables, directory=script.parent)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_is_said_however_the_process_ends(here: Path, ending: str) -> None:
    script = here / "short.py"
    script.write_text(SHORT.format(watching="trainmon.watch(model, optimizer)", ending=ENDINGS[ending]))
    done = python(script)
    assert done.stdout.startswith("trained"), done.stderr
    assert done.stderr.count("trainmon: measures ") == 1, done.stderr
    assert done.stderr.count("trainmon: ended before step 2: ") == 1, done.stderr


def test_a_sigterm_does_not_wait_for_a_log_that_needs_the_interpreter(here: Path) -> None:
    # The training thread never gives the interpreter away again: nobody writes into the pipe.
    hang = (
        "import ctypes, os, subprocess\n"
        "subprocess.Popen(['sh', '-c', f'sleep 1; kill -TERM {os.getpid()}'])\n"
        "ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)"
    )
    script = here / "short.py"
    logs = "import logging; logging.basicConfig(level=logging.INFO)"
    script.write_text(SHORT.format(watching=f"{logs}\ntrainmon.watch(model, optimizer)", ending=hang))
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=50, env=variables, cwd=here
    )
    assert done.returncode == -15, done.stderr
    assert "INFO:trainmon:measures " in done.stderr
    assert "trainmon: ended before step 2: " in done.stderr, "standard error heard it"


def test_closed_standard_error_hurts_nobody(here: Path) -> None:
    script = here / "short.py"
    script.write_text(SHORT.format(watching="import os; os.close(2)\ntrainmon.watch(model, optimizer)", ending=""))
    done = python(script)
    assert (done.returncode, done.stdout) == (0, "trained\n")


def test_a_script_is_run_without_a_config(here: Path) -> None:
    script = here / "train.py"
    script.write_text(SHORT.format(watching="", ending=""))
    done = python(script, "-m", "trainmon", "run", "--name", "seventh")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "trainmon: measures weight gradients, moments, parameters of 2 parameters; " in done.stderr
    assert (here / "monitor_output" / "seventh").is_dir()
    assert runs.rows(runs.run_directory(here / "monitor_output", 0), "grad_reduced")
    quiet = python(script, "-m", "trainmon", "run", "--quiet")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_a_script_that_watches_itself_is_watched_once(here: Path) -> None:
    script = here / "train.py"
    script.write_text(SHORT.format(watching="trainmon.watch(model, optimizer)", ending=""))
    done = python(script, "-m", "trainmon", "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trainmon: measures ") == 1, done.stderr
    assert "warning" not in done.stderr
    assert len(list((here / "monitor_output").glob("*/rank_0"))) - (here / "monitor_output" / "latest").exists() == 1
