"""What ranks send each other: every operation is seen, as torch's dispatcher sees it, and changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import distributed

from support.golden import directory
from support.matrix import full_matrix_only
from support.ranks import run_alone, run_ranks
from support.waiting import eventually
from trainmon.collectives.stragglers import WINDOW, Stragglers
from trainmon.ranks.surroundings import Surroundings


def test_planted_faults_are_found_and_named(tmp_path: Path) -> None:
    cases = ["slow_rank", "slow_in_turn", "nan_on_one_rank", "code_lines", "log_only"]
    cases += ["functional_results", "overlapped", "objects", "left_group", "dropped_watch"]
    said = run_ranks("communication_faults.py", 2, tmp_path, *cases)
    assert said.count("checked") == len(cases), said
    assert "is not measured" not in said, said
    assert "rank 1 is the straggler of the group `world`" in said
    fault = "a tensor of `all_reduce/world` on this rank has 1 NaN or infinite element before the call (`pre_0`)"
    assert f"step 1: {fault}" in said
    assert '"broadcast": [' in said and "communication_faults.py[" in said


def test_a_buffer_that_is_filled_accuses_no_rank_and_hides_no_nan(tmp_path: Path) -> None:
    said = run_ranks("communication_faults.py", 2, tmp_path, "filled_buffers")
    given = re.findall(r"step (\d): a tensor of `(\w+)/world` on this rank has .* before the call", said)
    operations = ["broadcast", "all_gather_into_tensor", "all_gather", "reduce_scatter_tensor", "all_to_all_single"]
    operations += ["gather", "scatter", "reduce", "send"]
    assert sorted(given) == sorted(("2", one) for one in operations), said
    # Who gave it is told of that alone; the other rank tells what it has received.
    received = re.findall(r"step (\d): a tensor of `(\w+)/world` on this rank has .* after the call", said)
    filled = ["broadcast", "all_gather_into_tensor", "all_gather", "reduce_scatter_tensor", "all_to_all_single"]
    assert sorted(received) == sorted(("2", one) for one in [*filled, "gather", "scatter", "reduce", "recv"]), said


def test_a_rank_with_a_slow_data_loader_is_an_alert_that_ends(tmp_path: Path) -> None:
    said = run_ranks("communication_faults.py", 2, tmp_path, "slow_loader")
    begun = re.findall(
        r"warning: Straggler: rank (\d) is the straggler of the group `world`: .* the others waited (.*) ms", said
    )
    (lags,) = re.findall(r"by the script's own clock: (.*)", said)
    least, most = 0.8e3 * min(json.loads(lags)), 1.2e3 * max(json.loads(lags))
    assert [(rank, least < float(lag) < most) for rank, lag in begun] == [("1", True)], said
    assert len(re.findall(r"Straggler: the group `world` no longer waits for rank 1 at step", said)) == 1, said
    (file,) = tmp_path.glob("slow_loader/*-*/anomaly_detected/rank0/anomaly.json")
    assert any("Straggler" in finding["message"] for finding in json.loads(file.read_text()).values())


@pytest.mark.skipif(directory() is None, reason="golden data of msprobe: not here")
def test_msprobes_answers_to_the_same_calls_agree(tmp_path: Path) -> None:
    said = run_ranks("communication_faults.py", 2, tmp_path, "golden")
    assert said.count("cells agree") == 4, said
    (run,) = (one for one in (tmp_path / "golden" / "v1_ddp2_cc_prepost").glob("*-*") if not one.is_symlink())
    theirs_read(run / "rank_0", tmp_path)


def theirs_read(run: Path, place: Path) -> None:
    """pandas and msprobe's own tool read what we write: a row per operation and slot, under a header that fits."""
    frames = {file.name.rsplit("_", 1)[0]: pd.read_csv(file) for file in sorted(run.glob("comm_*.csv"))}
    assert set(frames) == {"comm", "comm_time"}
    for name, frame in frames.items():
        assert len(frame) > 0 and list(frame.columns[:3]) == ["vpp_stage", "name", "step"], name
        assert not frame.columns.str.contains("Unnamed").any(), name
        assert not frame.duplicated(["name", "step"]).any() and set(frame["step"]) == {0, 1, 2}, name
    tensors = frames["comm"]
    assert tensors["norm"].dtype.kind == "f" and tensors["norm"].notna().all()
    assert "all_gather/world/pre_1" in set(tensors["name"])
    program = Path(sys.executable).parent / "msprobe"
    if not program.exists():
        pytest.skip("msprobe (mindstudio-probe) is not installed")
    # It reads files of nine names, and directories called as its own are.
    theirs = place / "data" / "Jan01_00-00-00-rank0-00000000"
    theirs.mkdir(parents=True)
    shutil.copy(next(run.glob("comm_[0-9]*.csv")), theirs / "other_0-9999.csv")
    command = [str(program), "data2db", "--db", str(place / "db"), "--data", str(theirs.parent), "--format", "monitor"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    asked = "select target_name, step, norm from trend_data join monitoring_targets using (target_id)"
    found = sqlite3.connect(place / "db" / "monitor_data.trend.db").execute(asked).fetchall()
    expected = {(row["name"], row["step"]): row["norm"] for _, row in tensors.iterrows()}
    assert {(name, step): norm for name, step, norm in found} == pytest.approx(expected)


class StragglerListener:
    """A monitor and its collectives, as far as stragglers are told them."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.told: list[tuple[str, int, float, float, int]] = []
        self.said: list[str] = []
        self.scalars: dict[str, float] = {}

    def set_straggler(self, group: str, rank: int, lag: float, median: float, step: int) -> None:
        self.told.append((group, rank, round(lag, 6), round(median, 6), step))

    def say(self, _severity: str, message: str, _hint: str | None) -> None:
        self.said.append(message)

    def scalar(self, name: str, value: float) -> None:
        self.scalars[name] = value


def test_a_sparse_tensor_has_the_bytes_that_are_sent(tmp_path: Path) -> None:
    said = run_alone("communication_sparse.py", tmp_path)
    assert "checked" in said, said
    (file,) = (one for one in tmp_path.glob("*-*/rank_0/comm_time_*.csv") if not one.is_symlink())
    # Three rows of eight float32, and the places of the rows; then ten float32.
    assert sorted(pd.read_csv(file)["bytes"]) == [10 * 4, 3 * 8 * 4 + 3 * 8]


def test_several_tensors_on_a_device_are_counted_and_none_stands_for_all(tmp_path: Path) -> None:
    said = run_alone("communication_several.py", tmp_path)
    assert "checked" in said and "a tensor on `meta` has no memory" in said, said
    (file,) = (one for one in tmp_path.glob("*-*/rank_0/comm_[0-9]*.csv") if not one.is_symlink())
    rows = set(pd.read_csv(file)["name"])
    # The host's call is the second; nothing is there of the first.
    assert {"all_gather/world/post_0"} <= rows, rows
    assert len(pd.read_csv(file)) == 2, "what goes into the host's call and what comes of it"


@pytest.mark.parametrize("sort", ["plain", "ddp"])
def test_works_of_a_class_of_their_own_end_when_they_are_waited_for(tmp_path: Path, sort: str) -> None:
    """And under DDP, whose operations are seen in the dispatcher, a script's own are recorded once."""
    said = run_alone("communication_fake.py", tmp_path, sort)
    assert "checked" in said, said
    (file,) = (one for one in tmp_path.glob("*-*/rank_0/comm_time_*.csv") if not one.is_symlink())
    rows = pd.read_csv(file).set_index("name")
    counts = {"all_reduce/world": 6, "all_gather/world": 3}
    if sort == "ddp":
        # Two of the check, and three broadcasts: one of the script, two of DDP's buffers, which are of two types.
        counts = {**counts, "all_reduce/world": 8, "broadcast/world": 3}
    assert rows["calls"].to_dict() == counts
    assert (rows["seconds"] > 0).all() and (rows["waited"] > 0).all(), "each has ended"


def test_the_straggler_of_a_group_is_one_of_its_ranks_and_its_first_rank_has_it() -> None:
    # Seconds per step inside of each group's operations. Two groups of one name share no rank, as Megatron's do.
    groups = [
        ("world", {0: 1.0, 1: 1.1, 2: 0.2, 3: 1.2}),
        ("tp", {0: 0.1, 2: 0.5}),
        ("tp", {1: 0.7, 3: 0.4}),
        ("cp", {1: 0.3, 2: 0.8, 3: 0.6}),
    ]
    store = distributed.HashStore()
    listeners: list[Any] = [StragglerListener(rank) for rank in range(4)]
    surroundings = Surroundings(open_store=lambda: store)
    ranks = [Stragglers(listener, listener, surroundings=surroundings) for listener in listeners]
    # The first is not whole, the second not known from its beginning; a rank is told of when it was last in three.
    for window in range(1, 6):
        for rank, one in enumerate(ranks):
            inside = [(group, list(of), of[rank]) for group, of in groups if rank in of]
            times = [(group, of, 4 * window, seconds * WINDOW * window) for group, of, seconds in inside]
            one.end_step(window * WINDOW, times)
    last = 5 * WINDOW
    eventually(lambda: len(listeners[0].said) >= 2 and len(listeners[1].said) >= 2)
    for one in ranks:
        one.close(1.0)
    told = [sorted(one for one in listener.told if one[-1] == last) for listener in listeners]
    assert told[0] == [("tp", 0, 0.4, 0.5, last), ("world", 2, 0.9, 1.1, last)]
    assert told[1] == [("cp", 1, 0.4, 0.7, last), ("tp", 3, 0.3, 0.7, last)]
    assert told[2:] == [[], []]
    assert listeners[1].scalars["straggler_rank/tp"] == 3
    said = sorted(message.partition(":")[0] for listener in listeners for message in listener.said)
    assert said == [
        "rank 0 is the straggler of the group `tp`",
        "rank 1 is the straggler of the group `cp`",
        "rank 2 is the straggler of the group `world`",
        "rank 3 is the straggler of the group `tp`",
    ]


#: Each repeats the test of two ranks with sums of four, and with groups that are not the world.
FOUR = full_matrix_only("four ranks of a framework take a minute on two cores; two ranks, and four without one, stay")


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_recorded_is_what_the_dispatcher_saw(tmp_path: Path, ranks: int) -> None:
    cases = ["plain", "ddp", "fsdp2"]
    said = run_ranks("communication.py", ranks, tmp_path, *cases, environment={"TORCH_FR_BUFFER_SIZE": "200000"})
    assert said.count("checked") == len(cases), said


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FOUR)])
def test_megatrons_operations_are_seen_in_their_groups(tmp_path: Path, ranks: int) -> None:
    cases = ["plain", "sharded", "tensor", "pipeline"]
    said = run_ranks("communication_megatron.py", ranks, tmp_path, *cases)
    assert said.count("checked") == len(cases), said
    assert "'tp'" in said and "'dp_cp'" in said, said


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FOUR)])
def test_deepspeeds_operations_are_seen(tmp_path: Path, ranks: int) -> None:
    said = run_ranks("communication_deepspeed.py", ranks, tmp_path, "2", "3")
    assert said.count("checked") == 2, said
