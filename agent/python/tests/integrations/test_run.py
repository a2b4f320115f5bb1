"""`python -m trainmon run`: scripts end as without it, and are watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from support import forks, runs, tiny
from support.environment import modules_in
from support.ranks import SCRIPTS, free_port, run

ALONE = str(SCRIPTS / "run_alone.py")
OPS = ["norm", "min", "max", "mean"]

Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "monitor.json"
    switches = {"wg_distribution": True, "mv_distribution": True, "param_distribution": True}
    # These steps take next to no time: on a busy machine a shorter queue would drop some.
    files = {"format": "csv", "output_dir": str(tmp_path / "out"), "queue_steps": 1000}
    path.write_text(json.dumps({**files, "ops": OPS, **switches}))
    return path


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, as users start it."""
    command = [sys.executable, *map(str, arguments)]
    variables = variables_of(environment)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=SCRIPTS)


def forked(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same where it is all one whether torch is there already."""
    return forks.run([str(one) for one in arguments], variables_of(environment), directory=SCRIPTS)


def variables_of(more: dict[str, str]) -> dict[str, str]:
    # What is said at the beginning and the end is looked at in first_minute.
    quiet = {"TRAINMON_QUIET": "1"}
    return {**os.environ, "PYTHONPATH": modules_in(SCRIPTS.parent), "OMP_NUM_THREADS": "1", **quiet, **more}


@pytest.mark.parametrize(
    ("kind", "start"),
    [("raise", python), ("exit", python), ("at_once", forked), ("terminated", forked), ("children", python)],
)
def test_a_script_ends_as_without_us_and_is_watched(config: Path, tmp_path: Path, kind: str, start: Start) -> None:
    with_us = start("-m", "trainmon", "run", "--config", config, ALONE, kind, "--config", "its own")
    without = start(ALONE, kind, "--config", "its own")
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (without.returncode, without.stdout, without.stderr)
    expected = {"raise": 1, "exit": 7, "at_once": 5, "terminated": -signal.SIGTERM}
    assert with_us.returncode == expected.get(kind, 0)
    directory = runs.run_directory(tmp_path / "out", 0)
    for number, step in enumerate(tiny.reference(1, 3)):
        reduced, local = (runs.by_name(runs.rows(directory, f"grad_{one}"), number) for one in ("reduced", "unreduced"))
        for name, mean in step.mean.items():
            runs.assert_shows(reduced[name], mean)
            runs.assert_shows(local[name], mean)
        line = runs.steps(directory)[number]
        assert float(line["grad_norm"]) == pytest.approx(step.norm, rel=1e-5)
        assert float(line["loss"]) == pytest.approx(step.loss[0], rel=1e-6)


def test_a_module_runs_as_with_python_m(config: Path, tmp_path: Path) -> None:
    with_us = python("-m", "trainmon", "run", "--config", config, "-m", "run_alone", "plain", "-m")
    without = python("-m", "run_alone", "plain", "-m")
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (0, without.stdout, without.stderr)
    assert len(runs.steps(runs.run_directory(tmp_path / "out", 0))) == 3


def test_each_of_two_optimizers_has_its_own_run(config: Path, tmp_path: Path) -> None:
    done = forked("-m", "trainmon", "run", "--config", config, "--", ALONE, "two")
    assert done.returncode == 0, done.stderr
    directories = runs.rank_directories(tmp_path / "out", 0)
    names = sorted((sorted({row["name"] for row in runs.rows(one, "grad_reduced")}) for one in directories), key=len)
    assert names == [["bias", "weight"], ["0.bias", "0.weight", "1.bias", "1.weight"]]
    assert all(len(runs.steps(one)) == 2 for one in directories)


COMPILED = """
import sys, torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# Of no module: it is looked for while the model is compiled.
loose = torch.zeros(3, requires_grad=True)
other = torch.optim.SGD([loose], lr=0.1)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()

@torch.compile(fullgraph=True, backend="eager")
def forward(x):
    return model(x)

for step in range(40):
    forward(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    # What runs eagerly sees that nothing is looked for any more.
    model(torch.ones(2, 3))
from torch.nn.modules import module
print("hooks", len(module._global_forward_pre_hooks))
"""


def test_a_script_that_compiles_is_not_in_the_way_of_looking(config: Path, tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(COMPILED)
    done = forked("-m", "trainmon", "run", "--config", config, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hooks 0\n"
    assert done.stderr.count("optimizers not watched: 1") == 1
    directory = runs.run_directory(tmp_path / "out", 0)
    assert runs.steps(directory)[-1]["step"] == "40", "steps were noticed to the end"


CLOSURE = """
import json, torch
from support import tiny

class Own(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)

for kind in (torch.optim.SGD, Own, torch.optim.LBFGS):
    net = tiny.model()
    parameters = list(net.parameters())
    optimizer = kind(parameters, lr=0.01 if kind is torch.optim.LBFGS else 0.1)
    norms = []

    def closure():
        optimizer.zero_grad()
        loss = tiny.loss_of(net, step, 0)
        loss.backward()
        norms.append((step, float(torch.nn.utils.get_total_norm([one.grad for one in parameters]))))
        return loss

    for step in range(4):
        optimizer.step(closure) if step % 2 else optimizer.step(closure=closure)
    print(json.dumps([next(norm for number, norm in norms if number == step) for step in range(4)]))
    print(float(sum(one.detach().double().abs().sum() for one in parameters)))
"""


def test_a_step_whose_closure_makes_the_first_forward_pass_is_the_first(config: Path, tmp_path: Path) -> None:
    script = tmp_path / "closure.py"
    script.write_text(CLOSURE)
    # SGD keeps no moments, which would be said.
    config.write_text(json.dumps({**json.loads(config.read_text()), "mv_distribution": False}))
    done = forked("-m", "trainmon", "run", "--config", config, script)
    alone = forked(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, alone.stderr)
    truth = [json.loads(line) for line in done.stdout.splitlines()[::2]]
    found = []
    for directory in runs.rank_directories(tmp_path / "out", 0):
        lines = runs.steps(directory)
        assert [line["step"] for line in lines] == ["0", "1", "2", "3"]
        found.append([float(line["grad_norm"]) for line in lines])
        for kind in ("grad_unreduced", "grad_reduced", "param_origin", "param_updated"):
            rows = runs.rows(directory, kind)
            assert all(len(runs.by_name(rows, step)) == 29 for step in range(4)), kind
    assert len(found) == len(truth)
    for norms, expected in zip(sorted(found), sorted(truth), strict=True):
        assert norms == pytest.approx(expected, rel=1e-5)


def test_a_script_without_training_is_told_once(config: Path, tmp_path: Path) -> None:
    done = forked("-m", "trainmon", "run", "--config", config, ALONE, "none")
    assert done.returncode == 0
    assert done.stderr.count("trainmon: warning: nothing was measured") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_is_told_before_the_script_starts(tmp_path: Path, config: Path) -> None:
    faulty = tmp_path / "faulty.json"
    faulty.write_text('{"wg_distributio": true, "start_step": -1}')
    for arguments, words in (
        ((faulty, ALONE, "plain"), ["error: ", "wg_distribution", "start_step"]),
        ((tmp_path / "none.json", ALONE, "plain"), ["error: ", "none.json", "hint: "]),
        ((config, tmp_path / "none.py"), ["error: cannot read the script", "hint: "]),
        ((config, "-m", "no_such_module"), ["error: cannot find the module", "hint: "]),
        ((config,), ["error: no script on the command line", "hint: "]),
        ((config, "--grad-acc-steps", "0", ALONE, "plain"), ["expected a positive integer"]),
    ):
        done = python("-m", "trainmon", "run", "--config", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert all(word in done.stderr for word in words), done.stderr
        assert "Traceback" not in done.stderr


def test_help_teaches_by_example() -> None:
    done = python("-m", "trainmon", "run", "--help")
    assert done.returncode == 0
    assert "torchrun --nproc_per_node=8 -m trainmon run --config monitor.json train.py" in done.stdout


def numbers(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("parameters")]


@pytest.fixture(scope="module")
def unwatched() -> list[str]:
    """What the script prints of its parameters."""
    return numbers(forked(ALONE, "plain"))


BREAK = """
import sys
import trainmon.{room} as room
def broken(*args, **kwargs): raise RuntimeError("injected")
{owner}.{name} = broken
sys.argv[:] = ["run_alone.py", "plain"]
exec(compile(open("run_alone.py").read(), "run_alone.py", "exec"))
"""


@pytest.mark.parametrize(
    ("room", "owner", "name"),
    [
        ("integrations.autodetect", "room.Discovery", "_look_at"),
        ("integrations.autodetect", "room.Discovery", "_attach"),
        ("watches.startup", "room", "start_monitor"),
        ("watches.watch", "room.Watch", "__init__"),
        ("device.measurer", "room.Measurer", "measure"),
    ],
)
def test_a_broken_hook_does_not_reach_the_script(
    config: Path, tmp_path: Path, unwatched: list[str], room: str, owner: str, name: str
) -> None:
    script = tmp_path / "breaks.py"
    script.write_text(BREAK.format(room=room, owner=owner, name=name))
    done = forked("-m", "trainmon", "run", "--config", config, script, PYTHONPATH=modules_in(SCRIPTS.parent, SCRIPTS))
    assert done.returncode == 0, done.stderr
    assert numbers(done) == unwatched
    assert "injected" in done.stderr


@pytest.mark.parametrize("name", ["a/b", "latest", "rank_3"])
def test_a_name_that_no_run_can_have_is_told_before_the_script_starts(tmp_path: Path, name: str) -> None:
    script = tmp_path / "says.py"
    script.write_text("print('the script runs')")
    done = forked("-m", "trainmon", "run", "--name", name, script)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    # Parts of torch report at the end of any process what they leaked.
    first, second, *others = done.stderr.splitlines()
    assert not any("trainmon" in line or "Traceback" in line for line in others), done.stderr
    assert first.startswith("error: ") and name in first and second.startswith("  hint: "), done.stderr


def test_under_torchrun_with_a_wrapper_put_on_after_the_optimizer(config: Path, tmp_path: Path) -> None:
    for place, words in (("watched", ["-m", "trainmon", "run", "--config", str(config)]), ("unwatched", [])):
        (tmp_path / place).mkdir()
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]
        run([*launch, *words, str(SCRIPTS / "run_ddp.py"), str(tmp_path / place)])
    for number, step in enumerate(tiny.reference(2, 3, clip=0.5)):
        for rank in range(2):
            directory = runs.run_directory(tmp_path / "out", rank)
            reduced = runs.by_name(runs.rows(directory, "grad_reduced"), number)
            local = runs.by_name(runs.rows(directory, "grad_unreduced"), number)
            for name, mean in step.mean.items():
                runs.assert_shows(reduced[name], mean, relative=1e-4)
                runs.assert_shows(local[name], step.local[rank][name], relative=1e-4)
            assert float(runs.steps(directory)[number]["loss"]) == pytest.approx(step.loss[rank], rel=1e-5)
    for rank in range(2):
        watched, unwatched = (torch.load(tmp_path / place / f"rank{rank}.pt") for place in ("watched", "unwatched"))
        assert all(torch.equal(watched[name], one) for name, one in unwatched.items())
