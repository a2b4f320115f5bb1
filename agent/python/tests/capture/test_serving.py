"""Engines that capture with msprobe, loops of one's own, and the guide for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.environment import ENVIRONMENT, STANDINS, modules_in
from trainmon import as_msprobe
from trainmon import vllm as plugin

CALLERS = Path(__file__).resolve().parent.parent / "scripts" / "serving_callers.py"
GUIDE = (Path(__file__).resolve().parents[4] / "docs" / "serving.md").read_text()
HAS_MSPROBE = find_spec("msprobe") is not None


def config_in(place: Path, **keys: Any) -> str:
    config = {"task": "statistics", "dump_path": str(place / "captured"), "level": "mix", "risk_level": "ALL"}
    (place / "capture.json").write_text(json.dumps({**config, "statistics": {}, **keys}))
    return str(place / "capture.json")


def step(place: Path, name: str) -> dict[str, Any]:
    (directory,) = (place / "captured" / name).iterdir()
    return json.loads((directory / "dump.json").read_text())["data"]


def run_as_msprobe(*words: str, over: bool = True) -> subprocess.CompletedProcess[str]:
    # The tests' environment has the real msprobe.
    variables = {**ENVIRONMENT, **({as_msprobe.OVER_VARIABLE: "1"} if over else {})}
    command = [sys.executable, "-m", "trainmon.as_msprobe", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("engine", "rank", "has_sampling"),
    [("sglang", "proc", True), ("sglang-dp", "rank2", True), ("ascend", "proc", True)],
)
def test_an_engine_that_calls_msprobe_captures_with_trainmon(
    engine: str, rank: str, has_sampling: bool, tmp_path: Path
) -> None:
    ended = run_as_msprobe(sys.executable, str(CALLERS), engine, config_in(tmp_path))
    assert ended.returncode == 0, ended.stderr
    # What is stepped and never started counts, as with msprobe.
    first = 1 if engine == "ascend" else 0
    assert sorted(path.name for path in (tmp_path / "captured").iterdir()) == [f"step{first + n}" for n in range(3)]
    assert all(path.name.startswith(rank) for path in (tmp_path / "captured").glob("step*/*"))
    data = step(tmp_path, f"step{first}")
    assert data["Module.head.Linear.forward.0"]["output"][0]["shape"] == [3, 16]
    assert ("Tensor.argmax.0.forward" in data) == has_sampling
    assert step(tmp_path, f"step{first + 1}")["Module.embed.Embedding.forward.0"]["input_args"][0]["shape"] == [1]


def test_a_request_is_cut_out_of_what_an_engine_schedules(tmp_path: Path) -> None:
    config = config_in(tmp_path, statistics={"request_id": "b"})
    assert run_as_msprobe(sys.executable, str(CALLERS), "ascend", config).returncode == 0
    assert not (tmp_path / "captured").exists(), "only `a` is scheduled"


def test_captures_of_graphs_are_refused_and_say_what_to_do(tmp_path: Path) -> None:
    ended = run_as_msprobe(sys.executable, str(CALLERS), "graphs", config_in(tmp_path))
    assert ended.returncode == 1
    assert "AclGraphDumper: trainmon cannot capture Ascend graphs; run eagerly" in ended.stderr


@pytest.mark.skipif(not HAS_MSPROBE, reason="msprobe is not installed here")
def test_the_real_msprobe_is_not_shadowed() -> None:
    ended = run_as_msprobe("true", over=False)
    assert ended.returncode == 2
    assert "error: msprobe is installed: " in ended.stderr and as_msprobe.OVER_VARIABLE in ended.stderr
    variables = {**ENVIRONMENT, "PYTHONPATH": modules_in(as_msprobe.DIRECTORY)}
    command = [sys.executable, "-c", "import msprobe"]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert "ImportError: msprobe is installed beside trainmon's replacement" in ended.stderr


def test_without_a_command_the_directory_is_printed_and_a_wrong_one_is_told() -> None:
    assert run_as_msprobe().stdout == f"{as_msprobe.DIRECTORY}\n"
    assert (Path(as_msprobe.DIRECTORY) / "msprobe" / "pytorch" / "__init__.py").is_file()
    ended = run_as_msprobe("no-such-command")
    assert (ended.returncode, ended.stderr) == (127, "error: cannot run `no-such-command`: No such file or directory\n")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the guide's config, where its programs are run."""
    (config,) = blocks("json")
    (tmp_path / "capture.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(plugin.CONFIG_VARIABLE, raising=False)
    return tmp_path


def test_the_guides_loop_captures_its_first_three_calls(guide: Path) -> None:
    exec(compile(blocks("python")[2], "serving.md", "exec"), {"__name__": "__main__"})
    for number in range(3):
        assert step(guide, f"step{number}")["Module.1.Linear.forward.0"]["output"][0]["shape"] == [3 + number, 16]
    assert not (guide / "captured" / "step3").exists()


def test_the_guides_range_of_calls_is_captured_in_one_step(guide: Path) -> None:
    exec(compile(blocks("python")[3], "serving.md", "exec"), {"__name__": "__main__"})
    data = step(guide, "step0")
    calls = [name for name in data if name.startswith("Module.1.Linear.")]
    assert calls == ["Module.1.Linear.forward.0", "Module.1.Linear.forward.1"]
    assert [data[name]["output"][0]["shape"][0] for name in calls] == [4, 5], "the second and the third"


@pytest.mark.parametrize(("number", "steps"), [(0, 3), (1, 3)])
def test_the_guides_programs_for_vllm_capture(
    number: int, steps: int, guide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(STANDINS))
    import vllm

    vllm.plugins.general_plugins.append(plugin.register)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "")
    try:
        exec(compile(blocks("python")[number], "serving.md", "exec"), {"__name__": "__main__"})
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
    assert len(list((guide / "captured").glob("step*/rank0/dump.json"))) == steps
    assert number == 0 or capsys.readouterr().out == "captured\n"


def test_the_guides_command_lines_have_configs_that_are_right(guide: Path) -> None:
    asked = re.findall(r"--additional-config '([^']*)'", GUIDE)
    configs = [json.loads(text) for text in asked]
    assert [list(config) for config in configs] == [["trainmon"], ["dump_config_path"]]
    assert plugin.checked(configs[0]["trainmon"]) == {"capture_config": "capture.json"}
    assert plugin.CONFIG_VARIABLE in GUIDE and as_msprobe.OVER_VARIABLE in GUIDE
