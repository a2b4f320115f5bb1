"""Event files: TensorBoard's own reader finds the CSV's numbers, after kills, on full disks, and after a conversion."""

from __future__ import annotations

import functools
import json
import math
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

import trainmon
from support import disks, events, forks, golden, runs, tiny
from support.command import trainmon as command
from support.events import Key
from support.ranks import variables_of_a_rank
from support.waiting import eventually

# A hang is a failure: far beyond what any of these programs takes.
PATIENCE_S = 120

BOTH: dict[str, Any] = {
    "format": ["csv", "tensorboard"],
    "ops": ["min", "max", "mean", "norm", "nans", "zeros", "id", "crc32"],
    "wg_distribution": True,
    "monitor_mbs_grad": True,
    "mv_distribution": True,
    "param_distribution": True,
    "xy_distribution": True,
    "all_xy": True,
    "mg_direction": True,
    "update": True,
    "recording_l2_features": True,
    "l2_targets": {"linear_hook": []},
}

V2: dict[str, Any] = {
    "format": ["csv", "tensorboard"],
    "monitors": {
        "module": {},
        "weight_grad": {"enabled": True, "monitor_mbs_grad": True},
        "optimizer": {"enabled": True},
        "param": {"enabled": True},
        "update": {"enabled": True},
    },
}


def train(place: Path, config: dict[str, Any], steps: int = 4) -> Path:
    """Trains with micro-batches and a loss that is told, and gives back the run directory of rank 0."""
    net, optimizer = tiny.training()
    with trainmon.watch(net, optimizer, config=config, output_dir=str(place), grad_acc_steps=2) as watch:
        tiny.train(
            net, optimizer, steps, micro_batches=2, told=lambda _step, loss: watch.log(loss=loss, learning_rate=1e-3)
        )
        assert "0 dropped" in watch.close()
    return place / "rank_0" if "monitors" in config else runs.run_directory(place, 0)


@pytest.mark.parametrize("config", [BOTH, V2], ids=["v1", "v2"])
def test_every_value_is_the_csvs_with_its_step_and_time(tmp_path: Path, config: dict[str, Any]) -> None:
    run = train(tmp_path, config)
    shown = events.scalars(run / "tensorboard")
    facts, times = events.facts(run)
    cells = events.expected(run)
    assert len(cells) > 1000
    assert {key.kind for key in cells} >= {"actv", "actv_grad", "grad_unreduced", "param_origin", "update_ratio"}
    # A parameter that begins as zeros has no ratio in its first step.
    ratios = {step: [values[0] for key, values in cells.items() if is_ratio(key, step)] for step in times}
    assert sum(map(math.isinf, ratios[0])) == 5
    left_out = {
        Key("update_ratio", "update_ratio_log10_left_out", step): [float(sum(map(math.isinf, of_step)))]
        for step, of_step in ratios.items()
    }
    events.assert_same(shown, cells | facts | left_out)
    assert {Key("", "run/loss", 3), Key("", "run/grad_norm", 3), Key("", "run/step_seconds", 3)} <= facts.keys()
    assert all(point.time == times[key.step] for key, points in shown.items() for point in points)


@pytest.mark.parametrize("config", [BOTH, V2], ids=["v1", "v2"])
def test_a_conversion_of_the_csv_files_gives_the_same_events(tmp_path: Path, config: dict[str, Any]) -> None:
    run = train(tmp_path, config)
    done = command("convert", "--to", "tensorboard", run, "-o", tmp_path / "converted", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    report = json.loads(done.stdout)
    converted, live = tmp_path / "converted" / "rank0", run / "tensorboard"
    assert events.scalars(converted) == events.scalars(live)
    assert report["runs"][0]["kinds"] == sorted(path.name for path in live.iterdir() if path.is_dir())
    for one, other in zip(histograms(converted), histograms(live), strict=True):
        assert (one.step, one.wall_time, one.histogram_value) == (other.step, other.wall_time, other.histogram_value)


def is_ratio(key: Key, step: int) -> bool:
    return key.step == step and key.tag.endswith("/update_ratio")


def histograms(run: Path) -> list[Any]:
    found = events.accumulator(run / "update_ratio").Histograms("update_ratio_log10")
    assert found
    return list(found)


def test_update_ratios_are_spread_in_quarter_decades(tmp_path: Path) -> None:
    run = train(tmp_path, BOTH)
    rows = runs.rows(run, "update_ratio")
    for event in histograms(run / "tensorboard"):
        ratios = [float(row["update_ratio"]) for row in rows if int(row["step"]) == event.step]
        ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
        logarithms = np.maximum(np.log10(np.array(ratios)), -10.0)
        shown = event.histogram_value
        counts, _ = np.histogram(logarithms, bins=[-math.inf, *np.arange(-10.0, 2.01, 0.25), math.inf])
        assert shown.bucket == list(counts)
        assert shown.num == len(ratios)
        # No logarithm is rounded correctly to the last digit: numpy's is another one on each kind of processor.
        np.testing.assert_array_max_ulp(
            np.array([shown.min, shown.max]), np.array([min(logarithms), max(logarithms)]), maxulp=2
        )
        assert shown.sum == pytest.approx(float(logarithms.sum()), rel=1e-12)
        assert shown.sum_squares == pytest.approx(float((logarithms**2).sum()), rel=1e-12)


def test_todays_data_model_has_scalars_and_a_histogram_tensor(tmp_path: Path) -> None:
    """TensorBoard migrates what it reads: the dashboards see tensors with a plugin and a class."""
    run = train(tmp_path, BOTH, steps=1)
    (file,) = (run / "tensorboard" / "update_ratio").glob("events.out.tfevents.*")
    numbers = events.accumulator(file.parent)
    values = [value for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    classes = {value.tag: (value.metadata.plugin_data.plugin_name, value.metadata.data_class) for value in values}
    assert classes.pop("update_ratio_log10") == ("histograms", 2)
    assert set(classes.values()) == {("scalars", 1)}
    (histogram,) = (value for value in values if value.tag == "update_ratio_log10")
    buckets = tensor_util.make_ndarray(histogram.tensor)
    assert buckets.shape[1] == 3
    (left_out,) = numbers.Scalars("update_ratio_log10_left_out")
    assert buckets[:, 2].sum() + left_out.value == len(classes) - 1
    assert "logarithm" in histogram.metadata.summary_description


def test_without_csv_files_the_events_have_a_run_directory_or_the_one_that_is_named(tmp_path: Path) -> None:
    train(tmp_path / "own", {"format": "tensorboard", "wg_distribution": True}, steps=1)
    run = runs.run_directory(tmp_path / "own", 0)
    assert sorted(path.name for path in run.iterdir()) == ["alerts.jsonl", "tensorboard"]
    config = {"wg_distribution": True, "tensorboard": {"dir": str(tmp_path / "named")}}
    run = train(tmp_path / "csv", config, steps=1)
    assert not (run / "tensorboard").exists()
    shown = events.scalars(tmp_path / "named" / "rank0")
    events.assert_same(shown, events.expected(run) | events.facts(run)[0])


def test_more_tags_than_allowed_are_told_once_counted_and_the_rest_is_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = {**BOTH, "tensorboard": {"max_tags": 100}, "ops": ["norm", "mean"]}
    net, optimizer = tiny.training()
    with trainmon.watch(net, optimizer, config=config, output_dir=str(tmp_path)) as watch:
        tiny.train(net, optimizer, 3)
        report = watch.close()
    said = capfd.readouterr().err
    assert said.count("tags beyond the limit of 100") == 1, said
    assert "tensorboard.max_tags" in said
    line = next(line for line in report.splitlines() if "tensorboard" in line)
    run = runs.run_directory(tmp_path, 0)
    shown = events.scalars(run / "tensorboard")
    cells = events.expected(run)
    tensors = {key: points for key, points in shown.items() if key.kind and "log10" not in key.tag}
    assert 90 < len({(key.kind, key.tag) for key in tensors}) <= 100
    events.assert_same(tensors, {key: cells[key] for key in tensors})
    left_out = {(key.kind, key.tag) for key in cells} - {(key.kind, key.tag) for key in tensors}
    assert shown[Key("", "monitor/tags_left_out", 2)][0].value == len(left_out), line


TRAINING = """
import sys, torch, trainmon
from support import runs, tiny
from support.waiting import eventually
net, optimizer = tiny.training()
config = {"format": ["csv", "tensorboard"], "queue_steps": 1000, "step_count_per_record": 1000, "ops": ["norm", "mean"],
          "wg_distribution": True, "mv_distribution": True, "param_distribution": True}
with trainmon.watch(net, optimizer, config=config, output_dir=sys.argv[1]) as watch:
    for step in range(int(sys.argv[2])):
        optimizer.zero_grad()
        tiny.loss_of(net, step, 0).backward()
        optimizer.step()
        print("step", step, flush=True)
        if step in map(int, sys.argv[3:]):
            eventually(lambda: runs.is_settled(watch.monitor))
            print("settled", flush=True)
            input()
    print(watch.close())
"""


class Training:
    """The training above in a process of its own."""

    def __init__(self, place: Path, steps: int, *pauses: int) -> None:
        words = ["-c", TRAINING, str(place), str(steps), *map(str, pauses)]
        self.process = forks.Started(words, variables_of_a_rank(), place.parent)

    def wait_for_step(self, step: int) -> None:
        self.wait_for(f"step {step}\n")

    def wait_for(self, expected: str) -> None:
        for line in self.process.stdout:
            if line == expected:
                return
        raise AssertionError(f"the training ended: {self.process.wait()}")


def has_steps(directory: Path) -> bool:
    """Whether the run's own file, which is written last, has several steps in it: then those of all kinds have some."""
    files = directory.glob("events.out.tfevents.*")
    return any(len({event.step for event in events.events(file)}) > 2 for file in files)


def test_killed_at_any_moment_a_run_leaves_whole_steps(tmp_path: Path) -> None:
    for attempt in range(3):
        place = tmp_path / str(attempt)
        training = Training(place, 100_000)
        training.wait_for_step(20 + 7 * attempt)
        run = runs.run_directory(place, 0)
        # The files have a thread of their own, which may come late where the cores are busy.
        eventually(functools.partial(has_steps, run / "tensorboard"))
        training.process.send_signal(signal.SIGKILL)
        training.process.wait()
        shown = events.scalars(run / "tensorboard")
        steps = sorted({key.step for key in shown if key.kind == ""})
        assert steps and steps == list(range(len(steps)))
        for path in events.kinds(run / "tensorboard")[1:]:
            of_kind = [key for key in shown if key.kind == path.name]
            tags = {key.tag for key in of_kind}
            # Adam has no moments before its first step. A kind may be one step ahead of the run's own numbers.
            first = 1 if path.name.startswith("exp_avg") else 0
            last = max(key.step for key in of_kind)
            assert last in (steps[-1], steps[-1] + 1)
            assert len(of_kind) == len(tags) * (last + 1 - first), "every step has every tag"


def test_a_torn_tail_costs_the_torn_step_only(tmp_path: Path) -> None:
    run = train(tmp_path, {"format": "tensorboard", "wg_distribution": True, "targets": {"head": {}}}, steps=3)
    (file,) = (run / "tensorboard" / "grad_reduced").glob("events.out.tfevents.*")
    whole = file.read_bytes()
    ends = [0]
    while ends[-1] < len(whole):
        ends.append(ends[-1] + 16 + int.from_bytes(whole[ends[-1] : ends[-1] + 8], "little"))
    assert (len(ends), ends[-1]) == (5, len(whole)), "the version and three steps"
    for cut in range(ends[-2], ends[-1]):
        file.write_bytes(whole[:cut])
        assert [event.step for event in events.events(file)] == [0, 0, 1], cut


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1.4 MB."""
    with disks.mounted(tmp_path / "disk", "1400k") as place:
        yield place


def test_on_a_full_disk_losses_are_counted_and_a_new_file_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (1100 << 10))
    training = Training(small_disk, 60, 40)
    # By then every step so far has been written or lost: what there is room for afterwards is sure.
    training.wait_for("settled\n")
    while "No space left" not in (line := training.process.stderr.readline()) or "tensorboard" not in line:
        assert line, "the training ended without a word"
    ballast.unlink()
    training.process.stdin.write("\n")
    _, report, said = training.process.wait()
    assert "tensorboard: works again" in said
    run = runs.run_directory(small_disk, 0)
    shown = events.scalars(run / "tensorboard")
    steps = sorted({key.step for key in shown if key.kind == "grad_reduced"})
    assert steps[0] == 0 and steps[-1] == 59 and len(steps) < 60
    assert all(len(points) == 1 for points in shown.values())
    files = sorted((run / "tensorboard" / "grad_reduced").iterdir())
    assert len(files) == 2, files
    for file in files:
        last = events.events(file)[-1]
        assert all(math.isfinite(value.simple_value) for value in last.summary.value)
    line = next(line for line in report.splitlines() if "tensorboard" in line)
    assert re.search(r"[1-9]\d* failed", line), report


def golden_runs() -> list[str]:
    """The recorded runs with tables, of one rank and of several."""
    place = golden.directory()
    if place is None:
        return []
    cases = [*(place / "01_monitor").glob("*/msprobe_out"), *(place / "02_monitor_dist").glob("*/msprobe_out")]
    return sorted(str(case.relative_to(place)) for case in cases if any(case.glob("*/*_[0-9s]*.csv")))


@pytest.mark.parametrize("case", golden_runs() or [pytest.param("", marks=pytest.mark.skip("no golden data"))])
def test_msprobes_files_are_converted_cell_by_cell(tmp_path: Path, case: str) -> None:
    place = golden.directory()
    assert place is not None
    output = place / case
    done = command("convert", "--to", "tensorboard", output, "-o", tmp_path / "events", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    directories = {path.parent for path in output.glob("*/*.csv") if path.name != "stack_info.csv"}
    assert {run["source"] for run in report["runs"]} == set(map(str, directories))
    for run in report["runs"]:
        cells = events.expected(Path(run["source"]))
        if not cells:
            assert "collectives" in "".join(report["warnings"])
            continue
        shown = events.scalars(Path(run["out"]))
        events.assert_same(shown, cells)
        assert run["values"] == sum(map(len, cells.values()))
        assert run["tags"] == len({(key.kind, key.tag) for key in cells})
        written = {file.stat().st_mtime for _, file in events.tables(Path(run["source"]))}
        assert {point.time for points in shown.values() for point in points} <= written
    mixed = [word for word in report["warnings"] if "collectives" not in word]
    assert mixed == []


def test_the_server_shows_what_was_written(tmp_path: Path) -> None:
    run = train(tmp_path, BOTH)
    program = Path(sys.executable).parent / "tensorboard"
    server = subprocess.Popen(
        [str(program), "--logdir", str(tmp_path), "--port", "0", "--host", "127.0.0.1", "--reload_interval", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        address = next(found.group(1) for line in server.stderr if (found := re.search(r"(http://[^ ]+)", line)))
        shown = events.scalars(run / "tensorboard")
        tag = "vp0:head.weight/norm"
        key = Key("grad_reduced", tag, 0)
        name = f"{run.relative_to(tmp_path)}/tensorboard/grad_reduced"

        def ask(path: str, **arguments: str) -> Any:
            query = urllib.parse.urlencode(arguments)
            with urllib.request.urlopen(f"{address}data/{path}?{query}", timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())

        # The server answers before it has read.
        while tag not in ask("plugin/scalars/tags").get(name, {}):
            assert server.poll() is None
        points = ask("plugin/scalars/scalars", run=name, tag=tag)
        assert [(time, step) for time, step, _ in points] == [
            (shown[key._replace(step=step)][0].time, step) for step in range(4)
        ]
        assert all(value == shown[key._replace(step=step)][0].value for _, step, value in points)
        ratios = f"{run.relative_to(tmp_path)}/tensorboard/update_ratio"
        while "update_ratio_log10" not in ask("plugin/histograms/tags").get(ratios, {}):
            assert server.poll() is None
        spread = ask("plugin/histograms/histograms", run=ratios, tag="update_ratio_log10")
        assert [step for _, step, _ in spread] == [0, 1, 2, 3]
    finally:
        server.kill()
        server.wait()
