"""Steps in the runs of Weights & Biases and MLflow, read back from what these wrote."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs, wandb_files, wandb_server
from support.waiting import eventually

STEPS = 5


class Deliveries:
    """The steps that a tracker was given, for the training to wait for: what it does next then comes after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tracker: type) -> None:
        self._changed = threading.Condition()
        self.steps: list[int] = []
        original = tracker.log  # type: ignore[attr-defined]

        def log(one: Any, step: int, unix_seconds: float, numbers: Any) -> Any:
            try:
                return original(one, step, unix_seconds, numbers)
            finally:
                with self._changed:
                    self.steps.append(step)
                    self._changed.notify_all()

        monkeypatch.setattr(tracker, "log", log)

    def wait_for(self, step: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: step in self.steps, timeout=60)


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package, writing into a directory of the test's only."""
    for name, value in [("MODE", "offline"), ("SILENT", "true"), ("DIR", str(tmp_path)), ("CONSOLE", "off")]:
        monkeypatch.setenv(f"WANDB_{name}", value)
    package = pytest.importorskip("wandb", reason="wandb is not installed")
    yield package
    if package.run is not None:
        package.finish()


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package, with a store in a directory of the test's only."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    package = pytest.importorskip("mlflow", reason="mlflow is not installed")
    before = package.get_tracking_uri()
    package.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield package
    package.end_run()
    package.set_tracking_uri(before)


@pytest.fixture
def to_wandb(monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    from trainmon.integrations.wandb import Tracker

    return Deliveries(monkeypatch, Tracker)


@pytest.fixture
def to_mlflow(monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    from trainmon.integrations.mlflow import Tracker

    return Deliveries(monkeypatch, Tracker)


def train(
    tmp_path: Path, config: dict[str, Any], after: Callable[[int], object] = lambda step: None, **options: Any
) -> str:
    """A training whose loss at step n is n + 1; its closing account. The step `spoilt` has a NaN gradient."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    base = {"wg_distribution": True, "ops": ["norm", "max"], "step_count_per_record": 100}
    watch = trainmon.watch(net, optimizer, config={**base, **config}, output_dir=str(tmp_path / "out"))
    for step in range(STEPS):
        optimizer.zero_grad()
        factor = math.nan if step == options.get("spoilt") else float(step + 1)
        (net(torch.ones(1, 2)).sum() * factor).backward()
        watch.log(loss=step + 1, accuracy=step / 10)
        optimizer.step()
        after(step)
    return watch.close()


def rows_of(tmp_path: Path) -> list[dict[str, Any]]:
    """What the one offline run would upload."""
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    return wandb_files.history(file)


def test_the_rows_are_the_scripts_own_and_keep_their_steps(tmp_path: Path, wandb: Any, to_wandb: Deliveries) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))

    def after(step: int) -> None:
        to_wandb.wait_for(step)
        run.log({"mine": 10 * step})

    account = train(tmp_path, {"wandb": True}, after)
    run.finish()
    rows = rows_of(tmp_path)
    assert [(row["_step"], row["mine"]) for row in rows] == [(step, 10 * step) for step in range(STEPS)]
    for step, (row, line) in enumerate(zip(rows, runs.steps(runs.run_directory(tmp_path / "out", 0)), strict=True)):
        assert row["trainmon/step"] == step
        assert row["trainmon/accuracy"] == step / 10
        for name in ("loss", "learning_rate", "grad_norm"):
            assert row[f"trainmon/{name}"] == float(line[name])
        cost = sum(float(line[f"{phase}_seconds"]) for phase in ("measure", "launch", "offer"))
        assert row["trainmon/overhead_seconds"] == pytest.approx(cost, rel=1e-6)
        assert not any("weight" in name for name in row), "no series for each tensor unless asked for"
    (delivered,) = [line for line in account.splitlines() if line.startswith("wandb: ")]
    assert not any(word in delivered for word in ("failed", "abandoned", "dropped")), delivered


def test_a_script_that_logs_by_step_of_its_own_loses_nothing(tmp_path: Path, wandb: Any, to_wandb: Deliveries) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))

    def after(step: int) -> None:
        to_wandb.wait_for(step)
        run.log({"mine": step}, step=100 * step)

    train(tmp_path, {"wandb": True}, after)
    run.finish()
    rows = [row for row in rows_of(tmp_path) if "mine" in row]
    assert [(row["_step"], row["mine"]) for row in rows] == [(100 * step, step) for step in range(STEPS)]
    told = {row["trainmon/step"]: row["trainmon/loss"] for row in rows_of(tmp_path) if "trainmon/step" in row}
    assert told == {step: step + 1 for step in range(STEPS)}


def test_in_shared_mode_every_step_is_a_row_of_the_run(
    tmp_path: Path, wandb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with wandb_server.serving() as server:
        settings = wandb.Settings(
            mode="shared", base_url=server.address, x_label="rank_0", x_disable_stats=True, save_code=False
        )
        run = wandb.init(project="p", entity="e", id="run", dir=str(tmp_path), settings=settings)
        account = train(tmp_path, {"wandb": True}, lambda step: run.log({"mine": step}))
        run.finish()
    (delivered,) = [line for line in account.splitlines() if line.startswith("wandb: ")]
    assert not any(word in delivered for word in ("failed", "abandoned", "dropped")), delivered
    ours = [(row["trainmon/step"], row["trainmon/loss"]) for row in server.rows if "trainmon/step" in row]
    assert ours == [(step, step + 1) for step in range(STEPS)]
    assert [row["mine"] for row in server.rows if "mine" in row] == [*range(STEPS)]


class Rows:
    """A run in what is looked at: a row may be ended while it is written to."""

    disabled = False

    def __init__(self) -> None:
        self.step = 0
        self.rows: dict[int, dict[str, float]] = {}
        self.before_log: Callable[[], object] = lambda: None

    def define_metric(self, *_: object, **__: object) -> None: ...

    def log(self, row: dict[str, float], commit: bool) -> None:
        assert not commit
        self.before_log()
        self.rows.setdefault(self.step, {}).update(row)

    def end_row(self) -> None:
        self.step += 1


def test_a_row_that_ends_while_a_step_is_on_its_way_keeps_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainmon.integrations.wandb import Tracker

    run = Rows()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))  # type: ignore[arg-type]
    tracker = Tracker("", False)
    run.before_log = run.end_row
    assert tracker.log(0, 0.0, []) == (0, 1)
    run.before_log = lambda: None
    assert tracker.log(1, 0.0, []) == (0, 0), "it waits for a row"
    run.end_row()
    assert tracker.log(2, 0.0, []) == (0, 1)
    assert run.rows == {1: {"step": 0}, 2: {"step": 1}}


@pytest.mark.parametrize("then", ["log", "finish"])
def test_steps_that_wait_are_not_the_next_runs(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    from trainmon.integrations.wandb import Tracker

    runs_in_turn = [Rows(), Rows()]
    module = SimpleNamespace(run=runs_in_turn[0])
    monkeypatch.setitem(sys.modules, "wandb", module)  # type: ignore[arg-type]
    tracker = Tracker("", False)
    assert [tracker.log(step, 0.0, []) for step in range(3)] == [(0, 1), (0, 0), (0, 0)]
    module.run = runs_in_turn[1]
    # An alert may be the first to meet the new run.
    runs_in_turn[1].alert = lambda **_: None  # type: ignore[attr-defined]
    assert tracker.alert(2, "rule", "title", "text", "info")
    if then == "log":
        assert tracker.log(3, 0.0, []) == (2, 1), "two are lost, the third of them is sent"
        assert runs_in_turn[1].rows == {0: {"step": 3}}
    else:
        assert tracker.finish() == (2, 0)
        assert runs_in_turn[1].rows == {}
    assert tracker.finish() == (0, 0), "told once"
    assert runs_in_turn[0].rows == {0: {"step": 0}}


def test_the_axis_of_our_charts_is_the_training_step(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))
    train(tmp_path, {"wandb": {"prefix": "watch/"}})
    run.finish()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    metrics = [record.metric for record in wandb_files.records(file) if record.WhichOneof("record_type") == "metric"]
    axes = {metric.glob_name or metric.name: metric.step_metric for metric in metrics}
    assert axes["watch/*"] == "watch/step"


def test_a_script_that_logs_nothing_has_every_step_with_commit_and_is_told_without(
    tmp_path: Path, wandb: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))
    train(tmp_path, {"wandb": {"commit": True, "every": 2}})
    run.finish()
    assert [row["trainmon/loss"] for row in rows_of(tmp_path)] == [1, 3, 5]
    capfd.readouterr()

    other = tmp_path / "other"
    other.mkdir()
    run = wandb.init(project="p", dir=str(other))
    train(other, {"wandb": True})
    run.finish()
    (row,) = rows_of(other)
    assert (row["trainmon/step"], row["trainmon/loss"]) == (STEPS - 1, STEPS)
    said = capfd.readouterr().err
    assert said.count("end fewer rows than there are steps") == 1 and '"commit": true' in said


def test_statistics_of_tensors_go_where_asked_for(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))
    train(tmp_path, {"wandb": {"commit": True, "layers": ["max"]}})
    run.finish()
    names = set(rows_of(tmp_path)[0])
    assert "trainmon/grad_reduced/weight/max" in names
    assert not any(name.endswith("/norm") for name in names)


def test_alerts_are_alerts_there(tmp_path: Path, wandb: Any) -> None:
    run = wandb.init(project="p", dir=str(tmp_path))
    train(tmp_path, {"wandb": True, "alert": {"rules": [{"rule_name": "NonFinite"}]}}, spoilt=3)
    run.finish()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    alerts = [record.alert for record in wandb_files.records(file) if record.WhichOneof("record_type") == "alert"]
    assert alerts and alerts[0].title == "NonFinite begins at step 3"
    assert alerts[0].level == "ERROR" and "grad" in alerts[0].text


def test_steps_scalars_and_alerts_are_in_the_mlflow_run(tmp_path: Path, mlflow: Any, to_mlflow: Deliveries) -> None:
    del to_mlflow
    with mlflow.start_run() as run:
        config = {"mlflow": {"layers": True}, "alert": {"rules": [{"rule_name": "NonFinite"}]}}
        train(tmp_path, config, spoilt=3)
    client = mlflow.MlflowClient()

    def history(name: str) -> list[tuple[int, float]]:
        return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]

    assert history("trainmon/loss") == [(step, step + 1) for step in range(STEPS)]
    assert history("trainmon/accuracy") == [(step, step / 10) for step in range(STEPS)]
    assert len(history("trainmon/grad_reduced/weight/norm")) == STEPS
    norms = dict(history("trainmon/grad_norm"))
    for step, line in enumerate(runs.steps(runs.run_directory(tmp_path / "out", 0))):
        # Of three numbers that are all the factor of the loss; what the weights are does not count.
        expected = math.nan if step == 3 else (step + 1) * math.sqrt(3)
        assert norms[step] == pytest.approx(expected, nan_ok=True)
        assert norms[step] == float(line["grad_norm"]) or step == 3
    assert history("trainmon/alerts")[0] == (3, 1.0)
    assert "begins at step 3" in client.get_run(run.info.run_id).data.tags["trainmon.alert.NonFinite"]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_without_a_run_it_is_said_once_and_the_steps_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    account = train(tmp_path, {name: True})
    said = capfd.readouterr().err
    assert said.count("no run is active") == 1
    assert ("wandb.init()" if name == "wandb" else "mlflow.start_run()") in said
    assert name not in sys.modules, "it is not imported"
    assert name in account
    assert len(runs.steps(runs.run_directory(tmp_path / "out", 0))) == STEPS


def test_a_tracker_that_fails_or_hangs_starves_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        step = 0
        disabled = False

        def define_metric(self, *_: object, **__: object) -> None: ...
        def log(self, *_: object, **__: object) -> None:
            raise ConnectionError("the server is away\nand a long story")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=Failing()))  # type: ignore[arg-type]
    train(tmp_path / "fails", {"wandb": True})
    said = capfd.readouterr().err
    assert said.count("ConnectionError: the server is away; losses are counted") == 1
    assert len(runs.steps(runs.run_directory(tmp_path / "fails" / "out", 0))) == STEPS

    released = threading.Event()

    class Hanging(Failing):
        def log(self, *_: object, **__: object) -> None:
            released.wait(60)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=Hanging()))  # type: ignore[arg-type]
    hangs = tmp_path / "hangs"

    def written(step: int) -> None:
        # The other outputs keep pace: only the one that hangs has a full queue.
        eventually(lambda: list(hangs.glob("out/*/steps.csv")), pause=0.001)
        eventually(lambda: len(runs.steps(runs.run_directory(hangs / "out", 0))) > step, pause=0.001)

    train(hangs, {"wandb": True, "queue_steps": 2, "shutdown_timeout_ms": 300}, written)
    released.set()
    assert "cannot keep up" in capfd.readouterr().err
    assert len(runs.steps(runs.run_directory(tmp_path / "hangs" / "out", 0))) == STEPS


_ENDS = """
import os, sys, types
import torch, trainmon
class Run:
    step = 0
    disabled = True
    def define_metric(self, *a, **k): pass
    def log(self, row, commit):
        with open(sys.argv[1], "a") as file: file.write(f"{row['trainmon/step']}\\n")
sys.modules["wandb"] = types.SimpleNamespace(run=Run())
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
watch = trainmon.watch(net, optimizer, config={"wandb": True, "queue_steps": 64}, output_dir=sys.argv[2])
for step in range(50):
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    if step == 25 and os.fork() == 0:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        sys.exit(0)
"""


def test_the_end_of_the_interpreter_delivers_what_is_queued_and_a_forked_child_goes_quietly(tmp_path: Path) -> None:
    steps = tmp_path / "steps.txt"
    command = [sys.executable, "-c", _ENDS, str(steps), str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [int(line) for line in steps.read_text().split()] == list(range(50))


def test_a_config_that_switches_it_off_or_is_wrong(tmp_path: Path) -> None:
    train(tmp_path, {"wandb": False, "mlflow": {"enabled": False}})
    with pytest.raises(trainmon.ConfigError, match=r"wandb\.every"):
        train(tmp_path, {"wandb": {"every": 0}})
    with pytest.raises(trainmon.ConfigError, match="mlflow"):
        train(tmp_path, {"mlflow": "yes"})


def test_the_guide_does_what_it_says(tmp_path: Path, wandb: Any) -> None:
    guide = Path(__file__).resolve().parents[4] / "docs" / "guides" / "wandb-mlflow-tensorboard.md"
    (config,) = re.findall(r"^```json\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (script,) = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "monitor.json").write_text(config)
    (tmp_path / "train.py").write_text(script)
    ended = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    # It is the training's own run alone that is written to; how many of its quick steps find a row is chance.
    rows = rows_of(tmp_path)
    assert [row["_step"] for row in rows if "my/loss" in row] == list(range(10))
    assert any("trainmon/accuracy" in row for row in rows)
    assert "mlflow: no run is active" in ended.stderr
