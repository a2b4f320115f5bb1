"""The plugin's work in an engine that has vLLM's names; `test_vllm.py` has the real one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.environment import STANDINS
from support.torch_inside import function_modes
from trainmon import vllm as plugin
from trainmon.captures import config_file

PROMPTS = [[1, 5, 9], [4, 2]]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The stand-in, with the plugin installed."""
    monkeypatch.syspath_prepend(str(STANDINS))
    monkeypatch.delenv(plugin.CONFIG_VARIABLE, raising=False)
    import vllm

    vllm.plugins.general_plugins.append(plugin.register)
    yield vllm
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def engine_of(vllm: ModuleType, **arguments: Any) -> Any:
    return vllm.LLM(enforce_eager=True, **arguments)


def generated(engine: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    params = sys.modules["vllm"].SamplingParams(max_tokens=tokens)
    found = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    return [one.outputs[0].token_ids for one in found]


def config_in(place: Path, **keys: Any) -> str:
    path = place / "config.json"
    config = {"task": "statistics", "dump_path": str(place / "dump"), "level": "mix", "risk_level": "ALL"}
    path.write_text(json.dumps({**config, "statistics": {}, **keys}))
    return str(path)


def steps(place: Path) -> dict[str, list[str]]:
    """The entries of each step."""
    found = {}
    for directory in sorted((place / "dump").glob("step*/rank*")):
        data = json.loads((directory / "dump.json").read_text())["data"]
        found[f"{directory.parent.name}/{directory.name}"] = list(data)
    return found


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("way", ["variable", "path", "keys"])
def test_each_iteration_is_a_step_and_a_warm_up_is_none(
    way: str, runner: str, vllm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config_in(tmp_path, step=[0, 2])
    asked: dict[str, Any] = {}
    if way == "variable":
        monkeypatch.setenv(plugin.CONFIG_VARIABLE, path)
    else:
        config = path if way == "path" else json.loads(Path(path).read_text())
        asked = {"additional_config": {"trainmon": {"capture_config": config}}}
    bare = generated(engine_of(vllm, runner=runner), PROMPTS, 4) if way != "variable" else None
    tokens = generated(engine_of(vllm, runner=runner, **asked), PROMPTS, 4)
    assert bare in (None, tokens)
    captured = steps(tmp_path)
    assert list(captured) == ["step0/rank0", "step2/rank0"]
    data = json.loads((tmp_path / "dump/step0/rank0/dump.json").read_text())["data"]
    assert data["Module.embed.Embedding.forward.0"]["input_args"][0]["shape"] == [5], "the prompts, not the warm-up"
    assert list(data["Module.mix.Linear.forward.0"]["parameters"]) == ["weight"], "there is no bias"
    assert "Torch.tanh.0.forward" in data
    assert not any("argmax" in name for name in data), "the window closes before the sampling"
    assert function_modes() == 0


def test_the_sampling_belongs_to_the_step_where_that_is_asked_for(vllm: ModuleType, tmp_path: Path) -> None:
    asked = {"trainmon": {"capture_config": config_in(tmp_path), "sampling": True}}
    generated(engine_of(vllm, additional_config=asked), PROMPTS, 2)
    captured = steps(tmp_path)
    assert list(captured) == ["step0/rank0", "step1/rank0"]
    assert all("Tensor.argmax.0.forward" in names for names in captured.values())


def test_of_a_request_only_its_rows_are_captured(vllm: ModuleType, tmp_path: Path) -> None:
    path = config_in(tmp_path, statistics={"request_id": "1"}, level="L0")
    generated(engine_of(vllm, additional_config={"trainmon": {"capture_config": path}}), PROMPTS, 1)
    data = json.loads((tmp_path / "dump/step0/rank0/dump.json").read_text())["data"]
    assert data["Module.embed.Embedding.forward.0"]["output"][0]["shape"] == [2, 8]


def test_engines_that_share_the_requests_have_ranks_of_their_own(vllm: ModuleType, tmp_path: Path) -> None:
    engine = engine_of(vllm)
    engine.vllm_config.parallel_config.data_parallel_index = 3
    engine.vllm_config.parallel_config.world_size = 2
    engine.worker.worker.rank = 1
    engine.vllm_config.additional_config = {"trainmon": {"capture_config": config_in(tmp_path)}}
    plugin.attach(engine.worker.worker)
    generated(engine, PROMPTS, 1)
    assert list(steps(tmp_path)) == ["step0/rank7"]


def test_a_switch_in_the_config_turns_the_capture_of_a_running_engine_on_and_off(
    vllm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "LOOKS_S", {True: 0.0, False: 0.0})
    path = config_in(tmp_path, dump_enable=False)
    engine = engine_of(vllm, additional_config={"trainmon": {"capture_config": path}})
    generated(engine, PROMPTS, 2)
    assert steps(tmp_path) == {}
    config_in(tmp_path, dump_enable=True)
    generated(engine, PROMPTS, 1)
    config_in(tmp_path, dump_enable=False)
    generated(engine, PROMPTS, 2)
    assert list(steps(tmp_path)) == ["step2/rank0"], "iterations are counted from the start"


def test_where_no_capture_is_asked_for_nothing_is_on_the_path(vllm: ModuleType) -> None:
    runner = engine_of(vllm).worker.worker.model_runner
    assert not {"execute_model", "sample_tokens"} & set(vars(runner))


def test_the_wheel_tells_vllm_of_the_plugin() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    (name,) = re.findall(r'^\[project\.entry-points\."vllm\.general_plugins"\]\n(?:#.*\n)?(\w+ = ".*")$', project, re.M)
    assert name == 'trainmon = "trainmon.vllm:register"'
    assert EntryPoint("trainmon", "trainmon.vllm:register", "vllm.general_plugins").load() is plugin.register


def test_registering_again_puts_nothing_more_in_place(vllm: ModuleType) -> None:
    plugin.register()
    once = vllm.WorkerWrapperBase.init_device
    plugin.register()
    assert vllm.WorkerWrapperBase.init_device is once


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"capture_config": "nowhere.json"}, "nowhere.json"),
        ({"capture_config": {"task": "statistics", "dump_path": "d", "level": "L7"}}, "L7"),
        ({"capture_confg": "c.json"}, "unknown key `capture_confg`: expected `capture_config`, `sampling`"),
        ({"capture_config": 3}, "expected a path or an object, found `int`"),
        ({"capture_config": "c.json", "sampling": "yes"}, "expected true or false, found `'yes'`"),
        ("c.json", "expected an object with `capture_config`, `sampling`, found `str`"),
    ],
)
def test_what_is_wrong_is_told_and_the_engine_serves(
    asked: Any, words: str, vllm: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = generated(engine_of(vllm, additional_config={"trainmon": asked}), PROMPTS, 2)
    told = capsys.readouterr().err
    assert words in told and "the engine continues" in told
    assert tokens == generated(engine_of(vllm), PROMPTS, 2)


def test_an_engine_that_compiles_its_model_is_told_of(
    vllm: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vllm.LLM(enforce_eager=False, additional_config={"trainmon": {"capture_config": config_in(tmp_path)}})
    assert "enforce_eager=True" in capsys.readouterr().err


def test_an_iteration_that_raises_ends_its_step(vllm: ModuleType, tmp_path: Path) -> None:
    engine = engine_of(vllm, additional_config={"trainmon": {"capture_config": config_in(tmp_path), "sampling": True}})
    with pytest.raises(RuntimeError, match="an unlucky request"):
        generated(engine, [[13]], 1)
    assert function_modes() == 0
    generated(engine, PROMPTS, 1)
    assert list(steps(tmp_path)) == ["step0/rank0", "step1/rank0"]


def test_a_capture_that_fails_ends_and_the_engine_serves(
    vllm: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = engine_of(vllm, additional_config={"trainmon": {"capture_config": config_in(tmp_path)}})
    engine.worker.worker.model_runner.get_model = lambda: "no model"
    expected = generated(engine_of(vllm), PROMPTS, 2)
    assert generated(engine, PROMPTS, 2) == expected
    told = capsys.readouterr().err
    assert told.count("the capture ends: TypeError") == 1


def test_workers_begin_and_end_captures_when_they_are_told_to(vllm: ModuleType, tmp_path: Path) -> None:
    engine = engine_of(vllm, worker_extension_cls="trainmon.vllm.WorkerExtension")
    runner = engine.worker.worker.model_runner
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        assert engine.collective_rpc("trainmon_begin", (config_in(place),)) == [""]
        generated(engine, PROMPTS, 2)
        engine.collective_rpc("trainmon_end")
        assert not {"execute_model", "sample_tokens", "_trainmon_capture"} & set(vars(runner))
        assert list(steps(place)) == ["step0/rank0", "step1/rank0"]
    (why,) = engine.collective_rpc("trainmon_begin", ("nowhere.json",))
    assert "nowhere.json" in why
    assert not vars(runner).get("_trainmon_capture")


def test_what_another_has_put_around_ours_stays(vllm: ModuleType, tmp_path: Path) -> None:
    engine = engine_of(vllm, worker_extension_cls="trainmon.vllm.WorkerExtension")
    runner = engine.worker.worker.model_runner
    engine.collective_rpc("trainmon_begin", (config_in(tmp_path),))
    ours = runner.execute_model

    def theirs(*args: Any) -> Any:
        return ours(*args)

    runner.execute_model = theirs
    engine.collective_rpc("trainmon_end")
    assert runner.execute_model is theirs
    assert generated(engine, PROMPTS, 1)
    assert steps(tmp_path) == {}
