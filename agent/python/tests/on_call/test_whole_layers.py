"""A real Prometheus puts the layers of sharded trainings together: they equal those of one process, same data."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import alert_servers, forks
from support.alert_servers import Servers, wait_for
from support.ranks import SCRIPTS, free_port, variables_of_a_rank

#: Runs of one model: the one that one process trains, with those that several do.
OF_TORCH = {"single": 0, "ddp": 2, "fsdp2": 2}
OF_DEEPSPEED = {"zero2": 2}
OF_MEGATRON = {"tp1": 1, "tp2": 2, "pp2": 2}
LAST_STEP = 3
LAYER = ("layer", "group", "tensor", "scope")
#: What is recorded, and the labels that tell its series apart.
RECORDED = {
    "run:trainmon_layer_norm:whole": LAYER,
    "run:trainmon_layer_abs_max:max": LAYER,
    "run:trainmon_layer_mean:whole": LAYER,
    "run:trainmon_zero_elements_ratio:whole": LAYER,
    "run:trainmon_parameter_norm:whole": ("name", "tensor", "scope"),
}
#: What each rank has for itself.
OWN = ("unreduced", "actv", "actv_grad", "mg_direction")

Series = dict[tuple[str, ...], float]


class Trainings:
    """Each with pages that are served until the end."""

    def __init__(self, servers: Servers, directory: Path) -> None:
        self.servers = servers
        self._directory = directory
        self._processes: list[int] = []

    def run(self, cases: dict[str, int]) -> None:
        """Starts them; returns when Prometheus has put the last step of all of them together."""
        for case, ranks in cases.items():
            self._start(case, ranks)
        pages = sum(max(1, ranks) for ranks in cases.values())
        runs = "|".join(cases)
        query = self.servers.query
        told = f'count(trainmon_step{{run=~"{runs}"}} == {LAST_STEP})'
        wait_for("last step of all ranks", lambda: [one for one in query(told) if float(one["value"][1]) == pages])
        # Every page is read once more, and what is recorded is made of that.
        self._wait_for_newer(f'trainmon_step{{run=~"{runs}"}}', len(cases))
        for name in RECORDED:
            self._wait_for_newer(f'{name}{{run=~"{runs}"}}', len(cases))

    def _wait_for_newer(self, series: str, runs: int) -> None:
        (now,) = self.servers.query("vector(time())")
        newer = f"min by (run) (timestamp({series})) > {now['value'][1]}"
        wait_for(series, lambda: len(self.servers.query(newer)) == runs)

    def _start(self, case: str, ranks: int) -> None:
        place = self._directory / case
        place.mkdir()
        target = str(self._directory / "targets" / f"{case}.json")
        told = {"LAYOUT_SERVE": target, "TRAINMON_RUN_NAME": case, "MASTER_ADDR": "127.0.0.1"}
        told |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        words = [str(SCRIPTS / "layout_train.py"), "out", case]
        for rank in range(max(1, ranks)):
            own = {**told, "RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks else {**told, "WORLD_SIZE": "1"}
            with (place / f"log{rank}").open("w") as log, Path(os.devnull).open() as nothing:
                files = (nothing.fileno(), log.fileno(), log.fileno())
                self._processes.append(forks.server().start(words, variables_of_a_rank(own), place, files))

    def recorded(self, name: str, run: str) -> Series:
        """What Prometheus has of a run."""
        return self.asked(f'{name}{{run="{run}"}}', RECORDED[name])

    def asked(self, expression: str, by: tuple[str, ...]) -> Series:
        """The series of an expression that are of the whole model."""
        found = {}
        for one in self.servers.query(expression):
            labels = tuple(one["metric"].get(label, "") for label in by)
            if not any(label in OWN for label in labels):
                found[labels] = float(one["value"][1])
        return found

    def close(self) -> None:
        """Ends all."""
        for process in self._processes:
            forks.kill(process)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    if missing := alert_servers.missing():
        pytest.skip(f"no {' and no '.join(missing)} on PATH (Debian: prometheus prometheus-alertmanager)")
    directory = tmp_path_factory.mktemp("whole_layers")
    servers = Servers(directory)
    made = Trainings(servers, directory)
    try:
        yield made
    finally:
        made.close()
        servers.close()


def assert_same(trainings: Trainings, run: str, single: str) -> None:
    norms = trainings.recorded("run:trainmon_layer_norm:whole", single)
    by = ", ".join(LAYER)
    elements = trainings.asked(f'sum by ({by}) (trainmon_layer_part_elements{{run="{run}"}})', LAYER)
    assert len({tensor for _, _, tensor, _ in norms}) >= 5, norms
    for name in RECORDED:
        found, expected = trainings.recorded(name, run), trainings.recorded(name, single)
        if run == "zero2":
            # Each rank measures the change of what it steps, of the values all have copies: nobody can tell who counts.
            expected = {key: value for key, value in expected.items() if "update" not in key or "abs_max" in name}
            found = {key: value for key, value in found.items() if key in expected or "update" not in key}
        assert expected, name
        assert found.keys() == expected.keys(), (name, run, found.keys() ^ expected.keys())
        for key, value in expected.items():
            scale = abs(value)
            if "mean" in name:
                # It may be small beside the elements.
                scale = max(scale, norms[key] / math.sqrt(elements.get(key, 64)))
            # A share of elements moves by whole ones, which stand at the border.
            allowed = 0.02 if "zero" in name else 2e-4 * scale
            assert not math.isnan(found[key]), (name, run, key)
            assert abs(found[key] - value) <= allowed, (name, run, key, found[key], value)


def test_torchs_ways_and_deepspeeds_partitions_equal_one_process(trainings: Trainings) -> None:
    cases = OF_TORCH | (OF_DEEPSPEED if importlib.util.find_spec("deepspeed") else {})
    trainings.run(cases)
    for run in cases:
        assert_same(trainings, run, "single")
    query = trainings.servers.query
    part = 'count({__name__=~"trainmon_.*_part_.*",run="%s"})'
    assert not query(part % "single")
    assert not query(part % "ddp"), "no series more where every rank holds everything"
    assert query(part % "fsdp2")
    # By itself no page has the norm.
    halves = {
        one["metric"]["layer"]: float(one["value"][1]) for one in query('trainmon_layer_norm{run="fsdp2",rank="0"}')
    }
    wholes = {key[0]: value for key, value in trainings.recorded("run:trainmon_layer_norm:whole", "fsdp2").items()}
    assert halves.keys() == wholes.keys()
    assert any(halves[layer] < 0.9 * wholes[layer] for layer in halves)


def test_megatrons_slices_and_stages_equal_one_process(trainings: Trainings) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    trainings.run(OF_MEGATRON)
    assert_same(trainings, "tp2", "tp1")
    # Stages begin with other weights than the whole model has there, and each counts its layers from 0. A tied
    # embedding stands in the rows of the first stage and of the last.
    stages = trainings.recorded("run:trainmon_layer_norm:whole", "pp2")
    names = {key for key in stages if key[0] != "output_layer"}
    assert names == trainings.recorded("run:trainmon_layer_norm:whole", "tp1").keys()
    last = trainings.asked('trainmon_layer_norm{run="pp2",rank="1",layer="decoder.layers.0"}', LAYER)
    assert len(last) > 10
    for key, value in last.items():
        assert stages[("decoder.layers.1", *key[1:])] == pytest.approx(value, rel=1e-12)
