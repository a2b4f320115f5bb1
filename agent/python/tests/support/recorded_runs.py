"""An hour of four runs as Prometheus would have scraped and recorded it, in blocks that a real Prometheus reads.

`gpt` trains 120 layers on two ranks, with norms far below one and layers that went wrong; `a run & its twin` trains;
`ended` ended half an hour ago; `killed` was killed and left its target files. One more target is no training.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import alert_servers
from support.ranks import free_port
from support.waiting import eventually

#: Fixed, so that the same is drawn on every day.
START = 1_767_571_200
SECONDS = 3600
SCRAPE = 60
END = START + SECONDS
RUNS = ("gpt", "a run & its twin", "ended", "killed")
#: When the last two were seen last, as a share of the hour.
LAST_SEEN = {"ended": 0.5, "killed": 0.4}
LAYERS = 120
#: Layers of `gpt` from three quarters of the hour on: what their norm is, on one rank or on both.
WRONG = {7: (math.nan, {1}), 50: (math.nan, {0, 1}), 90: (math.inf, {0}), 110: (0.0, {0, 1})}
WORDS = {7: "NaN", 50: "NaN", 90: "infinity", 110: "zero"}
PROGRAMS = ("prometheus", "promtool")


def missing() -> list[str]:
    """What this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextmanager
def prometheus(directory: Path) -> Iterator[str]:
    """The address of a Prometheus that has this hour."""
    text = directory / "hour.txt"
    text.write_text("\n".join(samples()) + "\n# EOF\n", encoding="utf-8")
    data = directory / "data"
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    done = subprocess.run(made, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    config = directory / "prometheus.yml"
    config.write_text("{}\n", encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}"]
    with (directory / "log").open("w") as log:
        # The hour lies in the past: without this it would be thrown away.
        process = subprocess.Popen([*words, "--storage.tsdb.retention.time=100y"], stdout=log, stderr=log)
    try:
        _wait_until_ready(address, process, directory / "log")
        yield address
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return alert_servers.is_ready(address)

    eventually(is_ready, pause=0.05, what=f"Prometheus at {address}")


def samples() -> Iterator[str]:
    """Every sample of the hour, as OpenMetrics writes it."""
    for at in range(0, SECONDS + 1, SCRAPE):
        for name, labels, value in _scrape(at):
            told = ",".join(f'{key}="{word}"' for key, word in labels.items())
            yield f"{name}{{{told}}} {_number(value)} {START + at}"


def _number(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN" if math.isnan(value) else repr(value))


Sample = tuple[str, dict[str, str], float]


def _scrape(at: int) -> Iterator[Sample]:
    yield "up", {"job": "node", "instance": "127.0.0.1:9100"}, 1
    for number, run in enumerate(RUNS):
        is_seen = at <= LAST_SEEN.get(run, 1) * SECONDS
        ranks = (0, 1) if run == "gpt" else (0,)
        for rank in ranks:
            target = {
                "job": "trainmon",
                "run": run,
                "rank": str(rank),
                "instance": f"127.0.0.1:{9464 + 10 * number + rank}",
            }
            if is_seen or run == "killed":
                yield "up", target, float(is_seen)
            if is_seen:
                yield from _of_a_rank(target, at)
        if is_seen:
            yield from _recorded(run, at, len(ranks))
    yield from _alerts(at)
    yield from _first_moves(at)
    yield from _layers(at)


def _of_a_rank(target: dict[str, str], at: int) -> Iterator[Sample]:
    yield "trainmon_build_info", {**target, "version": "0.1.0"}, 1
    yield "trainmon_rank_info", {**target, "host": "node1"}, 1
    yield "trainmon_world_size", target, 2
    yield "trainmon_step", target, at
    yield "trainmon_loss", target, 3 - at / SECONDS
    yield "trainmon_grad_norm", target, 0.5
    yield "trainmon_series", target, 700
    yield "trainmon_records_dropped_total", target, 0
    yield "trainmon_last_step_timestamp_seconds", target, START + at - 1
    yield "trainmon_step_duration_seconds_sum", target, at
    yield "trainmon_step_duration_seconds_count", target, at


def _recorded(run: str, at: int, ranks: int) -> Iterator[Sample]:
    of = {"run": run}
    yield "run:trainmon_ranks:count", of, ranks
    yield "run:trainmon_last_step_age_seconds:max", of, 1
    yield "run:trainmon_steps:rate5m", of, 1
    yield "run:trainmon_grad_norm:max", of, 0.5
    yield "run:trainmon_grad_norm:avg1h", of, 0.5
    yield "rank:trainmon_overhead:ratio10m", {**of, "rank": "0"}, 0.01


def _alerts(at: int) -> Iterator[Sample]:
    if at < SECONDS / 2:
        return
    for alert, severity, run in (
        ("TrainingNonFinite", "page", "gpt"),
        ("GradNormSpike", "ticket", "gpt"),
        ("DeadLayer", "ticket", "gpt"),
        ("TrainingUnreachable", "page", "killed"),
        ("TrainingSlowdown", "ticket", "a run & its twin"),
    ):
        yield "ALERTS", {"alertname": alert, "alertstate": "firing", "severity": severity, "run": run}, 1


def _first_moves(at: int) -> Iterator[Sample]:
    of = {"job": "trainmon", "run": "gpt", "rank": "1", "instance": "127.0.0.1:9465"}
    if at >= 0.75 * SECONDS:
        weight = {"signal": "grad", "layer": "model.layers.7", "tensor_name": "model.layers.7.mlp.weight"}
        yield "trainmon_alert_first_move", {**of, "rule": "NonFinite", **weight}, 2700.003
        yield "trainmon_alert_first_move", {**of, "rule": "Spike", **weight, "layer": "", "tensor_name": ""}, 2711.001


def _layers(at: int) -> Iterator[Sample]:
    for rank in (0, 1):
        for number in (*range(LAYERS), None):
            layer = "embed" if number is None else f"model.layers.{number}"
            of = {"job": "trainmon", "run": "gpt", "rank": str(rank), "instance": f"127.0.0.1:{9464 + rank}"}
            of |= {"layer": layer, "group": "mlp", "tensor": "grad", "scope": "reduced"}
            value, wrong_on = WRONG.get(LAYERS if number is None else number, (0.0, set()))
            norm = value if rank in wrong_on and at >= 0.75 * SECONDS else 10 ** (-1 - (number or 0) / 40)
            yield "trainmon_layer_norm", of, norm
            yield "trainmon_layer_abs_max", of, norm / 4
            yield "trainmon_layer_mean", of, -norm / 100
            yield "trainmon_zero_elements_ratio", of, 0.0 if number else 0.25
