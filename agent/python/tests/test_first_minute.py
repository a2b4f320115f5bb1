"""The first minute: nothing to configure, where everything is, wrong use told at once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import command, control, forks, runs
from support.ranks import SCRIPTS

OPS = ["min", "max", "mean", "norm", "nans"]
GRADIENTS: dict[str, Any] = {"wg_distribution": True, "ops": ["norm"]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files go where the script runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONITOR_OUTPUT_DIR", raising=False)
    return tmp_path


class Said:
    """What was said on standard error since it was last asked."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self) -> str:
        return self._capfd.readouterr().err


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)


def a_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def train(model: nn.Module, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


@pytest.fixture
def model() -> nn.Module:
    return a_model()


@pytest.fixture
def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


# Nothing to configure.


def test_nothing_needs_configuring(model: nn.Module, optimizer: Any, here: Path, said: Said) -> None:
    with trainmon.watch(model, optimizer):
        train(model, optimizer, 3)
    run = runs.run_directory(here / "monitor_output", 0)
    for kind in ("grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "exp_avg_sq"):
        row = runs.by_name(runs.rows(run, kind), 2)["0.weight"]
        assert set(OPS) <= set(row), kind
    assert "warning" not in said()


@pytest.mark.parametrize("way", ["path", "file", "dict", "text", "commented text", "keys", "keys over a file"])
def test_a_config_is_taken_in_every_form(model: nn.Module, optimizer: Any, here: Path, way: str) -> None:
    text = json.dumps({**GRADIENTS, "start_step": 1})
    (here / "monitor.json").write_text(f"// what is measured\n{text}")
    given: dict[str, dict[str, Any]] = {
        "path": {"config": here / "monitor.json"},
        "file": {"config": "monitor.json"},
        "dict": {"config": {**GRADIENTS, "start_step": 1, "output_dir": here / "elsewhere"}, "output_dir": "out"},
        "text": {"config": text},
        "commented text": {"config": f"// what is measured\n{text}"},
        "keys": {**GRADIENTS, "start_step": 1, "mv_distribution": False, "param_distribution": False},
        "keys over a file": {"config": "monitor.json", "step_interval": 1, "output_dir": "out"},
    }
    with trainmon.watch(model, optimizer, **given[way]):
        train(model, optimizer, 3)
    run = runs.run_directory(here / ("out" if "output_dir" in given[way] else "monitor_output"), 0)
    rows = runs.rows(run, "grad_reduced")
    assert {row["step"] for row in rows} == {"1", "2"}
    assert "norm" in rows[0] and "max" not in rows[0]
    assert not list(run.glob("exp_avg*"))


def test_keys_take_the_place_of_the_configs(model: nn.Module, optimizer: Any, here: Path) -> None:
    config = {**GRADIENTS, "ops": ["min", "max"], "output_dir": str(here / "theirs")}
    with trainmon.watch(model, optimizer, config=config, ops=["norm"], output_dir=here / "ours"):
        train(model, optimizer)
    (row, *_) = runs.rows(runs.run_directory(here / "ours", 0), "grad_reduced")
    assert "norm" in row and "min" not in row
    assert not (here / "theirs").exists()


def test_a_config_that_is_none_is_told_with_what_was_meant(model: nn.Module, optimizer: Any, here: Path) -> None:
    (here / "monitor.json").write_text("{}")
    with pytest.raises(trainmon.ConfigError, match=r"`monitr.json`.*\n.*did you mean `monitor.json`\?"):
        trainmon.watch(model, optimizer, config="monitr.json")
    with pytest.raises(trainmon.ConfigError, match=r"cannot read the config file `wg_distribution`(.|\n)*hint: check"):
        trainmon.watch(model, optimizer, config="wg_distribution")
    with pytest.raises(trainmon.ConfigError, match="cannot read the config file"):
        trainmon.watch(model, optimizer, config="x" * 10_000)
    with pytest.raises(trainmon.ConfigError, match="null"):
        trainmon.watch(model, optimizer, config="a\0b")
    with pytest.raises(TypeError, match="expected a file, the JSON text of one, a dict or None, found list"):
        trainmon.watch(model, optimizer, config=["wg_distribution"])  # type: ignore[arg-type]
    with pytest.raises(trainmon.ConfigError, match="a set has no form in JSON"):
        trainmon.watch(model, optimizer, ops={"norm"})
    with pytest.raises(trainmon.ConfigError, match=r"^config:1:3: key `wg`|^config:1:\d+: a colon"):
        trainmon.watch(model, optimizer, config='{"wg"}')


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("wg_distributon", "unknown argument `wg_distributon`; did you mean `wg_distribution`?"),
        ("optimiser", "unknown argument `optimiser`; did you mean `optimizer`?"),
        ("grad_acc_step", "did you mean `grad_acc_steps`?"),
        ("colour", "unknown argument `colour`\nhint: besides its own arguments it takes the keys of a config file"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(
    model: nn.Module, optimizer: Any, here: Path, key: str, answer: str
) -> None:
    with pytest.raises(TypeError) as raised:
        trainmon.watch(model, optimizer, **{key: True})
    assert answer in str(raised.value)
    assert not (here / "monitor_output").exists()


def test_a_wrong_value_of_a_keyword_is_told_by_its_name(model: nn.Module, optimizer: Any) -> None:
    with pytest.raises(trainmon.ConfigError) as raised:
        trainmon.watch(model, optimizer, ops=["nrm"], config=GRADIENTS)
    assert str(raised.value).startswith("keyword arguments: key `ops[0]`: "), raised.value
    assert "did you mean `norm`?" in str(raised.value)


# It speaks at the beginning and at the end.


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
    assert lines[3:] == [
        f"  to compare it with another run: trainmon compare {directory} OTHER_RUN",
        f"  to ask how it is: trainmon ctl {directory} status",
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
        control.wait_until(lambda: any(Path("monitor_output/latest/rank_0").glob("grad_reduced_*.csv")))
        commands = [line.partition(": ")[2] for line in said().splitlines() if ": trainmon " in line]
        for line in commands:
            words = line.replace(" OTHER_RUN", f" {line.split()[2]}").split()[1:]
            done = command.trainmon(*words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert len(commands) == 2


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
    assert "of the model on rank 1" in lines[0]


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
    assert texts[0].startswith("`targets`: `3.weight` names nothing of the model\n  hint: ")
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
    variables = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent), "OMP_NUM_THREADS": "1", **environment}
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


# Wrong use.


def test_the_optimizer_of_another_model_is_refused(model: nn.Module, here: Path) -> None:
    other = torch.optim.AdamW(a_model().parameters())
    with pytest.raises(ValueError, match="none of the parameters") as raised:
        trainmon.watch(model, other)
    text = str(raised.value)
    assert "this AdamW steps (4: `(3, 4)`, `(3,)`, `(2, 3)`, …)" in text
    assert "the model, Sequential (4: `0.weight`, `0.bias`, `2.weight`, …)" in text
    assert "\nhint: make the optimizer of `model.parameters()`" in text
    assert not (here / "monitor_output").exists()


def test_an_optimizer_of_some_of_the_parameters_is_fine_and_said(model: nn.Module, said: Said) -> None:
    other = a_model()
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        pass
    heard = said()
    assert "4 of the 8 parameters that the optimizer steps belong to the model" in heard and "warning" not in heard
    part = torch.optim.SGD(model[2].parameters(), lr=0.1)  # type: ignore[index]
    with trainmon.watch(model, part, config=GRADIENTS):
        pass
    assert "belong to the model" not in said(), "every parameter that it steps is watched"


def test_copies_in_higher_precision_may_be_what_the_optimizer_steps(model: nn.Module) -> None:
    model = model.bfloat16()
    masters = [one.detach().float().requires_grad_() for one in model.parameters()]
    trainmon.watch(model, torch.optim.AdamW(masters), config=GRADIENTS).close()


def test_frozen_parameters_may_have_the_precision_of_the_copies(model: nn.Module) -> None:
    model[0].requires_grad_(False)  # type: ignore[index]
    model[2].bfloat16()  # type: ignore[index]
    masters = [nn.Parameter(one.detach().float()) for one in model.parameters() if one.requires_grad]
    trainmon.watch(model, torch.optim.AdamW(masters), config=GRADIENTS).close()
    with pytest.raises(ValueError, match="none of the parameters"):
        trainmon.watch(model, torch.optim.AdamW([nn.Parameter(one.bfloat16()) for one in masters]), config=GRADIENTS)


@pytest.mark.parametrize("what", ["flat", "views", "another's class"])
def test_an_optimizer_of_what_may_stand_for_the_parameters_is_accepted(model: nn.Module, what: str) -> None:
    flat = torch.cat([one.detach().flatten() for one in model.parameters()]).requires_grad_()
    optimizers: dict[str, Callable[[], Any]] = {
        "flat": lambda: torch.optim.SGD([flat], lr=0.1),
        "views": lambda: torch.optim.SGD([one.detach().requires_grad_() for one in model.parameters()], lr=0.1),
        "another's class": lambda: Wrapped(torch.optim.SGD(a_model().parameters(), lr=0.1)),
    }
    trainmon.watch(model, optimizers[what](), config=GRADIENTS).close()


class Wrapped:
    """As apex's and Megatron's: no torch optimizer, with one inside."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


class Chained:
    """As Megatron's chain: it refuses to name one."""

    def __init__(self, optimizer: Any) -> None:
        self.chained_optimizers = [optimizer]

    @property
    def optimizer(self) -> Any:
        raise AssertionError("several")

    def step(self) -> None:
        self.chained_optimizers[0].step()


class ByHand:
    """No groups at all."""

    def __init__(self, optimizer: Any) -> None:
        self._parameters = [one for group in optimizer.param_groups for one in group["params"]]

    def step(self) -> None:
        with torch.no_grad():
            for one in self._parameters:
                one.sub_(one.grad, alpha=0.1)

    def zero_grad(self) -> None:
        for one in self._parameters:
            one.grad = None


class ByHandScheduler(ByHand):
    """An optimizer that sets its own learning rate."""

    def get_lr(self) -> float:
        return 0.1


def accelerates(optimizer: Any) -> Any:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    return accelerate.Accelerator(cpu=True).prepare_optimizer(optimizer)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    "wrapped": Wrapped,
    "wrapped twice": lambda one: Wrapped(Wrapped(one)),
    "chained": Chained,
    "by hand": ByHand,
    "a scheduler as well": ByHandScheduler,
    "accelerate": accelerates,
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_whatever_steps_the_parameters_is_an_optimizer(
    model: nn.Module, optimizer: Any, said: Said, wrapper: str
) -> None:
    trainmon.watch(model, WRAPPERS[wrapper](optimizer), config=GRADIENTS).close()
    assert "warning" not in said()


def scheduler(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)


def on_plateau(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


class OptimizerParamScheduler:
    """Megatron's, in what is looked at."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> None: ...


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "scheduler": (scheduler, "expected a torch.optim.Optimizer, found LambdaLR\nhint: give scheduler.optimizer"),
    "plateau": (on_plateau, "found ReduceLROnPlateau\nhint: give scheduler.optimizer"),
    "megatron's": (OptimizerParamScheduler, "found OptimizerParamScheduler\nhint: give scheduler.optimizer"),
    "scaler": (lambda _: torch.amp.GradScaler("cpu"), "found GradScaler\nhint: give the optimizer that it steps"),
    "a model": (lambda _: a_model(), "found Sequential\nhint: `watch(model, optimizer)`"),
    "parameters": (lambda one: iter(one.param_groups[0]["params"]), "optimizer: expected a torch.optim.Optimizer"),
    "a number": (lambda _: 1e-3, "found float\nhint: give the object whose `step()` changes the parameters"),
    "several": (lambda one: [one, one], "optimizer: expected one, found 2 in a list"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_optimizer_is_refused(model: nn.Module, optimizer: Any, here: Path, what: str) -> None:
    make, answer = REFUSED[what]
    with pytest.raises(TypeError) as raised:
        trainmon.watch(model, make(optimizer))
    assert answer in str(raised.value)
    assert not (here / "monitor_output").exists()


MODELS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "state": (lambda one: one.state_dict(), "found OrderedDict\nhint: give `list(models.values())`"),
    "parameters": (lambda one: one.parameters(), "found generator\nhint: give the module itself, not an iterator"),
    "function": (lambda one: one.forward, "expected a torch.nn.Module or a list of them, found method"),
    "none": (lambda _: None, "found NoneType"),
    "no chunks": (lambda _: [], "found an empty list"),
    "a wrong chunk": (lambda one: [one, "head"], "found str"),
}


@pytest.mark.parametrize("what", MODELS)
def test_what_is_no_model_is_refused(model: nn.Module, optimizer: Any, what: str) -> None:
    make, answer = MODELS[what]
    with pytest.raises((TypeError, ValueError)) as raised:
        trainmon.watch(make(model), optimizer)
    assert str(raised.value).startswith("model: ") and answer in str(raised.value)


def test_swapped_arguments_are_refused_with_the_right_order(model: nn.Module, optimizer: Any) -> None:
    with pytest.raises(TypeError, match=r"expected `watch\(model, optimizer\)`, found `watch\(AdamW, Sequential\)`"):
        trainmon.watch(optimizer, model)


@pytest.mark.parametrize(
    ("given", "error", "answer"),
    [
        ({"grad_acc_steps": 0}, ValueError, "grad_acc_steps: expected an integer of at least 1, found 0"),
        ({"grad_acc_steps": "4"}, TypeError, "grad_acc_steps: expected an integer of at least 1, found '4'"),
        ({"start_iteration": -1}, ValueError, "start_iteration: expected an integer of at least 0, found -1"),
        ({"tp_group": object()}, RuntimeError, "tp_group: torch.distributed is not initialised"),
        ({"name": "a/b"}, ValueError, "a/b"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    model: nn.Module, optimizer: Any, given: dict[str, Any], error: type[Exception], answer: str
) -> None:
    with pytest.raises(error) as raised:
        trainmon.watch(model, optimizer, **given)
    assert answer in str(raised.value)


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_numpys_integers_are_integers(model: nn.Module, optimizer: Any, here: Path, said: Said, kind: str) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    of = getattr(numpy, kind)
    with trainmon.watch(model, optimizer, config=GRADIENTS, grad_acc_steps=of(1), start_iteration=of(7)):
        train(model, optimizer, 1)
    (line,) = runs.steps(runs.run_directory(here / "monitor_output", 0))
    assert line["step"] == "7"
    with pytest.raises(TypeError, match="grad_acc_steps"):
        trainmon.watch(model, optimizer, grad_acc_steps=True)
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    said()
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, of(1), optimizer, start_iteration=of(9))  # type: ignore[arg-type]
    assert [one.monitor.step for one in monitor._watches] == [9]
    monitor.close()
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(model, optimizer, grad_acc_steps=of(1))
    second.stop()
    assert "warning" not in said()


def half_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that two launchers have left their traces in."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "2")


def test_a_rank_that_cannot_be_told_is_refused(
    model: nn.Module, optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_set(monkeypatch)
    with pytest.raises(RuntimeError, match="cannot tell which rank this is"):
        trainmon.watch(model, optimizer)


@pytest.mark.parametrize("window", [{"start_step": 10, "stop_step": 5}, {"stop_step": 0}])
def test_steps_among_which_none_is_measured_are_refused(model: nn.Module, optimizer: Any, window: Any) -> None:
    with pytest.raises(trainmon.ConfigError, match="key `stop_step`: no step would be measured"):
        trainmon.watch(model, optimizer, config={**GRADIENTS, **window})
    with pytest.raises(trainmon.ConfigError, match="keyword arguments: key `stop_step`: no step would be measured"):
        trainmon.watch(model, optimizer, **window)


def test_a_model_without_trained_parameters_is_told(model: nn.Module, optimizer: Any, said: Said) -> None:
    model.requires_grad_(False)
    trainmon.watch(model, optimizer, config=GRADIENTS).close()
    assert "warning: none of the model's 4 parameters takes a gradient" in said()
    trainmon.watch(nn.Tanh(), None, config=GRADIENTS).close()
    assert "warning: the model has no parameters" in said()
    trainmon.watch(model, optimizer, config={"xy_distribution": True}).close()
    assert "takes a gradient" not in said(), "activations need none"


@pytest.mark.parametrize(
    ("targets", "signal", "words"),
    [
        ({"0.wieght": {}}, "wg_distribution", ["`0.wieght` names nothing", "the nearest names are `0.weight`"]),
        ({"weight": {}, "bias": {}}, "wg_distribution", ["`weight`, `bias` name nothing", "`0.weight`"]),
        ({"0.weight": {}}, "xy_distribution", ["`0.weight` names nothing", "`0`"]),
        ({"2": {}}, "xy_distribution", []),
        ({"2.we": {}}, "wg_distribution", []),
        ({}, "wg_distribution", []),
    ],
)
def test_targets_that_name_nothing_are_told_with_the_nearest_names(
    model: nn.Module, optimizer: Any, said: Said, targets: Any, signal: str, words: list[str]
) -> None:
    trainmon.watch(model, optimizer, config={signal: True, "targets": targets}).close()
    heard = said()
    assert ("warning: `targets`" in heard) == bool(words)
    assert all(word in heard for word in words), heard


def test_an_optimizer_without_moments_is_told_once_at_the_first_step(model: nn.Module, said: Said) -> None:
    config = {"mv_distribution": True, "ops": ["norm"]}
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainmon.watch(model, plain, config=config):
        said()
        train(model, plain, 1)
        assert "warning: moments are asked for, and the optimizer, SGD, keeps none" in said()
        train(model, plain, 2)
        assert said() == ""
    for kept in (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(model.parameters()),
        torch.optim.Adafactor(model.parameters()),
        torch.optim.RMSprop(model.parameters()),
    ):
        with trainmon.watch(model, kept, config=config):
            train(model, kept, 2)
        assert "moments are asked for" not in said(), kept
    with trainmon.watch(model, plain):
        train(model, plain, 1)
    heard = said()
    assert "moments are asked for" in heard and "warning" not in heard, "nobody asked for them"


def test_a_second_watch_of_the_same_training_takes_over(
    model: nn.Module, optimizer: Any, here: Path, said: Said
) -> None:
    first = trainmon.watch(model, optimizer, config=GRADIENTS, output_dir=here / "first")
    train(model, optimizer, 1)
    said()
    wrapped = Wrapped(optimizer)
    second = trainmon.watch(nn.ModuleList([model]), wrapped, config=GRADIENTS, output_dir=here / "second")
    heard = said()
    assert "warning: this model and optimizer are watched already: that watch is closed (its files: " in heard
    assert str(here / "first") in heard
    train(model, wrapped, 2)
    second.close()
    assert len(runs.steps(runs.run_directory(here / "first", 0))) == 1
    assert len(runs.steps(runs.run_directory(here / "second", 0))) == 2
    first.close()
    third = trainmon.watch(model, optimizer, config=GRADIENTS, output_dir=here / "third")
    third.close()
    assert "watched already" not in said(), "the others are closed"


def test_a_faulty_config_leaves_the_watch_that_there_is(model: nn.Module, optimizer: Any, here: Path) -> None:
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        with pytest.raises(trainmon.ConfigError):
            trainmon.watch(model, optimizer, config={"ops": 1})
        train(model, optimizer, 2)
    assert len(runs.steps(runs.run_directory(here / "monitor_output", 0))) == 2


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a\nb", ".", "..", "latest", "x" * 129, "ä" * 65, "\udc80", 5],
    ids=["empty", "slash", "line", "dot", "dots", "latest", "long", "long in bytes", "surrogate", "number"],
)
def test_a_faulty_name_leaves_the_watch_that_there_is(
    model: nn.Module, optimizer: Any, here: Path, said: Said, name: Any
) -> None:
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        with pytest.raises((ValueError, TypeError)):
            trainmon.watch(model, optimizer, config=GRADIENTS, name=name)
        train(model, optimizer, 2)
    assert len(runs.steps(runs.run_directory(here / "monitor_output", 0))) == 2
    assert "watched already" not in said()


@pytest.mark.parametrize("name", [None, "baseline", "ä" * 64], ids=["none", "short", "longest"])
def test_what_the_earlier_watch_holds_is_free_for_the_next(
    model: nn.Module, optimizer: Any, said: Said, name: str | None
) -> None:
    first = trainmon.watch(model, optimizer, config=GRADIENTS)
    monitor = first.monitor
    was_over: list[bool] = []
    from trainmon import starting

    start = starting.start_monitor

    def starts(*args: Any, **kwargs: Any) -> Any:
        was_over.append(first._is_closed)
        return start(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(starting, "start_monitor", starts)
        trainmon.watch(model, optimizer, config=GRADIENTS, name=name).close()
    assert was_over == [True] and monitor.shutdown()
    assert "watched already" in said()


def test_models_that_share_a_parameter_and_an_optimizer_have_a_watch_each(here: Path, said: Said) -> None:
    encoder, decoder = a_model(), a_model()
    decoder[0].weight = encoder[0].weight  # type: ignore[index]
    both = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    watches = [
        trainmon.watch(one, optimizer, config=GRADIENTS, output_dir=here / name)
        for one, name in ((encoder, "encoder"), (decoder, "decoder"))
    ]
    assert "watched already" not in said()
    for model in (encoder, decoder):
        model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    for watch in watches:
        watch.close()
    assert [len(runs.steps(runs.run_directory(here / name, 0))) for name in ("encoder", "decoder")] == [1, 1]


def test_two_optimizers_of_a_model_have_a_watch_each(model: nn.Module, here: Path, said: Said) -> None:
    halves = [torch.optim.SGD(model[number].parameters(), lr=0.1) for number in (0, 2)]  # type: ignore[index]
    watches = [
        trainmon.watch(model, one, config=GRADIENTS, output_dir=here / str(number)) for number, one in enumerate(halves)
    ]
    for one in halves:
        train(model, one, 2)
    for watch in watches:
        watch.close()
    assert "warning" not in said()
    assert [len(runs.steps(runs.run_directory(here / str(number), 0))) for number in range(2)] == [2, 2]


# Scripts that were written for msprobe go on.


def test_with_msprobes_import_a_rank_that_cannot_be_told_is_a_warning(
    model: nn.Module, optimizer: Any, here: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    half_set(monkeypatch)
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer)
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(model, optimizer)
    heard = said()
    assert heard.count("trainmon: warning: cannot tell which rank this is") == 2, heard
    assert heard.count("nothing is measured; training goes on") == 2
    train(model, optimizer, 1)
    monitor.close()
    second.stop()
    assert not (here / "monitor_output").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda model, optimizer: (model, scheduler(optimizer)), "found LambdaLR"),
        (lambda model, _: (model, torch.optim.AdamW(a_model().parameters())), "none of the parameters"),
        (lambda model, optimizer: (optimizer, model), "have changed places"),
        (lambda _, optimizer: (None, optimizer), "model: expected a torch.nn.Module"),
    ],
)
def test_with_msprobes_import_wrong_use_is_a_warning(given: Any, words: str, here: Path, said: Said) -> None:
    (here / "monitor.json").write_text(json.dumps({**GRADIENTS, "start_step": 4, "stop_step": 2}))
    model = a_model()
    optimizer = torch.optim.AdamW(model.parameters())
    its_model, its_optimizer = given(model, optimizer)
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(its_model, optimizer=its_optimizer)
    train(model, optimizer, 1)
    monitor.close()
    heard = said()
    assert f"trainmon: warning: {'model' if 'model' in words else ''}" in heard and words in heard, heard
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(its_model, its_optimizer)
    second.stop()
    heard += said()
    assert "no step would be measured" in heard
    assert "please report" not in heard, heard


# Whose fault it is.


def test_what_the_trainings_own_code_raises_is_not_to_be_reported(model: nn.Module, optimizer: Any, said: Said) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = a_model()

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"] == "trainmon.parameters":
                raise RuntimeError("not now")
            return super().named_parameters(*args, **kwargs)

    own = Own()
    trainmon.watch(own, None, config=GRADIENTS).close()
    heard = said()
    assert "failed and is off" in heard and "RuntimeError: not now" in heard
    assert f"hint: it was raised by the training's own code: look at `{__file__}`" in heard
    assert "please report" not in heard


def test_what_we_raise_is_to_be_reported(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmon.gradients import Gradients

    # Our own code, with what it does not expect.
    monkeypatch.setattr(Gradients, "close", lambda _: trainmon.watch(1, 2))  # type: ignore[arg-type]
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        train(model, optimizer)
    assert said().count("hint: please report this line") == 1


def test_an_adhoc_check_of_what_is_no_tensor_is_counted_and_told(
    model: nn.Module, optimizer: Any, here: Path, said: Said
) -> None:
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer)
    for _ in range(2):
        monitor.adhoc_check(3.0, "mlp", "out", 0, [])  # type: ignore[arg-type]
    monitor.adhoc_check(torch.ones(3), "mlp", "out", 0, [])  # type: ignore[arg-type]
    train(model, optimizer)
    monitor.close()
    heard = said()
    assert heard.count("adhoc of `mlp.out` is not measured: expected a tensor, found a float") == 1, heard
    assert "please report" not in heard
    assert len(runs.rows(runs.run_directory(here / "monitor_output", 0), "adhoc")) == 1
