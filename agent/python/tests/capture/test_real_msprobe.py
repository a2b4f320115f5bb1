"""The real msprobe reads our dumps, and finds no difference from its own of the same programs."""

from __future__ import annotations

import csv
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support import dump_truth, golden
from support.dump_truth import Truth
from support.environment import ENVIRONMENT

GOLDEN = golden.directory()
MSPROBE = Path(sys.executable).parent / "msprobe"
#: One of each task: numbers, checksums, tensors.
CASES = ["bench_stat", "bench_md5", "bench_tensor"]

pytestmark = [
    pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)"),
    pytest.mark.skipif(not MSPROBE.exists(), reason="msprobe is not installed here"),
]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The programs, run under trainmon."""
    cases = {name: dump_truth.case_of(GOLDEN / "03_dump" / name) for name in CASES}
    return Truth(tmp_path_factory.mktemp("dumps"), cases)


def msprobe(command: str, ours: Path, theirs: Path, out: Path) -> Path:
    """The file that the command makes."""
    words = [str(MSPROBE), command, "-tp", str(ours), "-gp", str(theirs), "-o", str(out)]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    (made,) = (file for file in out.iterdir() if file.is_file())
    return made


@pytest.mark.parametrize("name", CASES)
def test_its_compare_finds_no_difference(name: str, truth: Truth, tmp_path: Path) -> None:
    # It takes no path with a space, and the recorded one may lie anywhere.
    theirs = shutil.copytree(truth.expected(name), tmp_path / "theirs")
    (tmp_path / "out").mkdir()
    dumps = (truth.ran(name) / "msprobe_out", theirs)
    ours, theirs = (next((dump / "step0").glob("*/dump.json")) for dump in dumps)
    with msprobe("compare", ours, theirs, tmp_path / "out").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 100
    assert {row["Result"] for row in rows} == {"pass"}
    assert all(row["NPU Name"] == row["Bench Name"] for row in rows)


def test_its_graph_finds_no_difference(truth: Truth, tmp_path: Path) -> None:
    ours, theirs = truth.ran("bench_md5") / "msprobe_out" / "step0", truth.expected("bench_md5") / "step0"
    # It writes beside what it reads.
    shutil.copytree(theirs, tmp_path / "theirs")
    (tmp_path / "out").mkdir()
    made = msprobe("graph_visualize", ours, tmp_path / "theirs", tmp_path / "out")
    with sqlite3.connect(made) as database:
        sides = database.execute("select data_source, count(*) from tb_nodes group by data_source").fetchall()
        tensors = database.execute("select input_data, output_data from tb_nodes where data_source = 'NPU'").fetchall()
    assert len(sides) == 2
    assert sides[0][1] == sides[1][1], sides
    results = re.findall(r'"Result": "([^"]*)"', str(tensors))
    assert len(results) > 100
    assert set(results) == {"pass"}
