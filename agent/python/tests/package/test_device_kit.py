"""The device kit, as it is carried to a machine: its dry form, and what a machine without a device gets.

What it measures is no test's business; that it ends in a whole table, whatever becomes of its parts, is.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from support.environment import ENVIRONMENT, modules_in

CHECKOUT = Path(__file__).parents[4]
PACKAGE = CHECKOUT / "integration-tests" / "device_kit"
BENCHES = CHECKOUT / "agent" / "python" / "benches"

#: Generous: other tests run beside this one.
SECONDS = 1200
PATIENCE_S = 1500

OURS = ("import", "values", "training", "streams", "graphs", "compile", "tch")


@dataclass
class Done:
    """A run of the kit."""

    status: int
    said: str
    out: Path

    @property
    def found(self) -> dict[str, Any]:
        return json.loads((self.out / "device.json").read_text())

    def rows(self, part: str) -> list[dict[str, Any]]:
        return [row for row in self.found["rows"] if row["part"] == part]


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """The folder that is carried, without wheels: what Python finds by itself is used."""
    folder = tmp_path / "a kit"
    shutil.copytree(PACKAGE, folder / "device_kit", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.move(folder / "device_kit" / "run.sh", folder / "run.sh")
    (folder / "benches").mkdir()
    for name in ("overhead.py", "gpts.py", "dump.py"):
        shutil.copy(BENCHES / name, folder / "benches")
    (folder / "facts.json").write_text(json.dumps({"trainmon": "0.0.0", "tch": "its libraries do not fit"}))
    return folder


def run(kit: Path, *words: object) -> Done:
    """Runs the kit with this Python, from a directory of no matter."""
    out = kit.parent / "what came out"
    command = ["sh", str(kit / "run.sh"), "--out", str(out), *map(str, words)]
    variables = {**ENVIRONMENT, "PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables, cwd=kit.parent, timeout=PATIENCE_S
    )
    return Done(done.returncode, done.stdout + done.stderr, out)


def with_parts(kit: Path, **bodies: str) -> None:
    """Gives the kit these parts instead of its own: each the body of its `run`."""
    lines = []
    for name, body in bodies.items():
        module = (
            f"from __future__ import annotations\n\nTITLES = ('one', 'two')\n\n\ndef run(setting, report):\n{body}\n"
        )
        (kit / "device_kit" / f"part_{name}.py").write_text(module)
        lines.append(f"    Part({name!r}, 'device_kit.part_{name}', {5 if name == 'hangs' else 300}),\n")
    head = "from device_kit.part import Part\n\nPARTS = (\n"
    (kit / "device_kit" / "parts.py").write_text(f"{head}{''.join(lines)})\n")


# The kit itself.


def test_the_dry_form_ends_well_with_every_part(kit: Path) -> None:
    done = run(kit, "--dry", "--seconds", SECONDS)
    assert done.status == 0, done.said
    found, written = done.found, (done.out / "table.txt").read_text()
    titles = found["titles"]
    assert [part for part in titles if not done.rows(part)] == []
    wrong = [row for row in found["rows"] if row["verdict"] in ("FAILED", "BROKEN") or "no time" in row["detail"]]
    assert wrong == []
    for part in OURS:
        assert [row["what"] for row in done.rows(part)] == titles[part], part
    assert written in done.said
    assert all(row["what"] in written for row in found["rows"])
    assert (done.out / "table.md").read_text().startswith("| part | what |")
    assert found["machine"]["torch"] == torch.__version__ and found["kit"]["trainmon"] == "0.0.0"
    assert set(found["seconds"]) == {"machine", *titles}
    assert done.rows("tch")[0]["detail"] == "not carried: its libraries do not fit"


def test_without_a_device_every_part_says_so_by_name(kit: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    done = run(kit)
    assert done.status == 0, done.said
    titles = done.found["titles"]
    assert [part for part in titles if titles[part] == [part]] == [], "it cannot be imported"
    expected = [(part, title) for part in titles for title in titles[part]]
    assert len(set(expected)) == len(expected) > 50
    rows = done.found["rows"]
    assert [(row["part"], row["what"]) for row in rows] == expected
    assert {(row["verdict"], row["detail"]) for row in rows} == {("skipped", "no CUDA device")}
    assert "Traceback" not in done.said


def test_a_chosen_part_is_the_only_one(kit: Path) -> None:
    done = run(kit, "--dry", "--only", "tch", "--seconds", SECONDS)
    assert done.status == 0, done.said
    assert {row["part"] for row in done.found["rows"]} == {"tch"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "flor"], "there is no part 'flor'"),
        (["--seconds", "0"], "more than 0"),
        (["--seconds", "soon"], "invalid float"),
        (["--wet"], "unrecognized arguments"),
    ],
)
def test_wrong_use_is_told_and_exits_with_2(kit: Path, words: list[str], said: str) -> None:
    done = run(kit, *words)
    assert (done.status, said in done.said, "Traceback" in done.said) == (2, True, False), done.said
    assert not (done.out / "device.json").exists()


# What may become of a part.


#: Parts that go wrong, each in its way. What one waits for it started itself: that is ended as well.
BODIES = {
    "raises": """
    report.check('one', True)
    with report.guard('two'):
        raise ValueError('two')
    open('/')""",
    "exits": """
    report.check('one', True)
    raise SystemExit(3)""",
    "killed": """
    import os, sys
    report.check('one', True)
    print('last words', file=sys.stderr, flush=True)
    os.kill(os.getpid(), 9)""",
    "hangs": """
    import subprocess, sys
    report.check('one', True)
    subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)'])""",
    "silent": """
    pass""",
    "breaks": """
    report.check('one', False, 3.0, 'bytes', 'first line\\nsecond line')""",
    "good": """
    report.measured('one', 1.5, 's')
    report.skipped('two', 'no second one')""",
}


def test_parts_that_raise_die_or_hang_leave_a_whole_table(kit: Path) -> None:
    with_parts(kit, **BODIES)
    done = run(kit, "--dry", "--seconds", 350)
    assert done.status == 1, done.said
    found = {(row["part"], row["what"]): (row["verdict"], row["detail"]) for row in done.found["rows"]}
    verdicts = {key: verdict for key, (verdict, _) in found.items()}
    assert verdicts == {
        **{(part, "one"): "ok" for part in ("raises", "exits", "killed", "hangs")},
        ("raises", "two"): "FAILED",
        ("raises", "raises"): "FAILED",
        ("exits", "exits"): "FAILED",
        ("killed", "killed"): "FAILED",
        ("hangs", "hangs"): "FAILED",
        ("silent", "silent"): "FAILED",
        ("breaks", "one"): "BROKEN",
        ("good", "one"): "measured",
        ("good", "two"): "skipped",
    }
    assert "ValueError: two" in found["raises", "two"][1] and "IsADirectoryError" in found["raises", "raises"][1]
    assert "exit status 3" in found["exits", "exits"][1]
    assert "SIGKILL" in found["killed", "killed"][1] and "last words" in found["killed", "killed"][1]
    assert "not done after 5 s" in found["hangs", "hangs"][1]
    assert "without a word" in found["silent", "silent"][1]
    table = (done.out / "table.txt").read_text()
    assert "first line" in table and "second line" not in table
    assert "second line" in found["breaks", "one"][1]


def test_a_part_that_cannot_be_imported_is_a_row(kit: Path) -> None:
    with_parts(kit, good="    report.measured('one', 1.5, 's')", lost="    pass")
    (kit / "device_kit" / "part_lost.py").write_text("import a_module_that_nobody_has\n")
    done = run(kit, "--dry", "--seconds", SECONDS)
    assert done.status == 1, done.said
    assert [row["verdict"] for row in done.rows("good")] == ["measured"]
    assert [row["verdict"] for row in done.rows("lost")] == ["FAILED"]
    assert "a_module_that_nobody_has" in done.rows("lost")[0]["detail"]


#: Runs the parts by a clock that goes on for days after the first.
LATE = """
import sys, time, types
from pathlib import Path
from device_kit import driver, parts, table
late = [0.0]
driver.time = types.SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + late[0])
out = Path(sys.argv[1])
run = driver.Driver(parts.PARTS, out, 1000.0, lambda outcome: late.insert(0, 1e6), is_dry=True).run()
table.write(out, run, {})
"""


def test_parts_that_no_time_is_left_for_say_so_by_name(kit: Path) -> None:
    with_parts(kit, **dict.fromkeys(("first", "second", "third"), "    report.check('one', True)"))
    out = kit.parent / "out"
    variables = {**ENVIRONMENT, "PYTHONPATH": modules_in(kit)}
    subprocess.run([sys.executable, "-c", LATE, str(out)], check=True, env=variables, timeout=PATIENCE_S)
    done = Done(0, "", out)
    assert [row["verdict"] for row in done.rows("first")] == ["ok"]
    for part in ("second", "third"):
        assert [(row["what"], row["verdict"], row["detail"]) for row in done.rows(part)] == [
            ("one", "skipped", "no time left"),
            ("two", "skipped", "no time left"),
        ]


def test_without_torch_there_is_a_row_and_no_traceback(kit: Path) -> None:
    # It stands where Python looks first.
    (kit / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    done = run(kit, "--dry")
    assert done.status == 1 and "Traceback" not in done.said, done.said
    failed = [row for row in done.found["rows"] if row["verdict"] == "FAILED"]
    assert [row["detail"] for row in failed] == [
        "torch cannot be imported: ImportError: libcudart.so.13: cannot open shared object file"
    ]
    others = [row for row in done.found["rows"] if row["verdict"] != "FAILED"]
    assert {row["detail"] for row in others} == {"torch cannot be imported"}
    assert [row["part"] for row in others] == list(done.found["titles"])


# The wheels.


def test_our_wheel_comes_first_and_the_others_last(kit: Path) -> None:
    """What the machine has is not replaced, but for what is tried; what a part starts finds the same."""
    wheels = {"wheels/trainmon-9.whl": ("trainmon", "9"), "wheels/other/numpy-0.whl": ("numpy", "0")}
    wheels["wheels/other/only_in_the_kit-3.whl"] = ("only_in_the_kit", "3")
    for place, (package, version) in wheels.items():
        (kit / place).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(kit / place, "w") as wheel:
            wheel.writestr(f"{package}/__init__.py", f"__version__ = {version!r}\n")
            wheel.writestr(f"{package}-{version}.data/scripts/{package}", "#!python\n")
            wheel.writestr(f"{package}-{version}.data/purelib/{package}/more.py", "")
    looks = "import trainmon, trainmon.more, numpy, only_in_the_kit as kit\n"
    looks += "found = ' '.join((trainmon.__version__, numpy.__version__, kit.__version__))\n"
    body = f"""
    import subprocess, sys
    command = [sys.executable, '-c', {looks + "print(found)"!r}]
    done = subprocess.run(command, capture_output=True, text=True)
    report.measured('one', done.stdout.strip() or done.stderr)
    space = dict()
    exec({looks!r}, space)
    report.measured('two', space['found'])"""
    with_parts(kit, looks=body)
    done = run(kit, "--dry", "--seconds", SECONDS)
    assert done.status == 0, done.said
    numpy = importlib.import_module("numpy").__version__
    assert [row["value"] for row in done.rows("looks")] == [f"9 {numpy} 3"] * 2
    assert not (kit / "wheels" / "ours").exists(), "the kit is as it was carried"
