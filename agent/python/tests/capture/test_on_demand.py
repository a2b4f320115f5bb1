"""Captures that are asked for while a training runs: by `ctl dump`, a signal, the config file, an alert."""

from __future__ import annotations

import gc
import http.client
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import trainmon
from support import control, tiny
from support.on_demand import Training, captured, steps_in
from support.ranks import run_ranks
from support.torch_inside import function_modes, hooks_of
from trainmon.captures.capture_signal import CaptureSignal


@pytest.fixture(autouse=True)
def usr1(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The signal as a fresh process has it."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, before)


def refusal_of(addresses: Path, request: dict[str, Any]) -> tuple[int, str, str]:
    """The status, the words and the hint with which a request is refused."""
    connection = control.Connection(addresses / "control.sock")
    connection.request("POST", "/dump", json.dumps(request).encode())
    response: http.client.HTTPResponse = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status >= 400, answer
    return response.status, answer["error"], answer["hint"]


def test_a_step_that_is_asked_for_is_captured_whole_and_nothing_stays(tmp_path: Path) -> None:
    names = ("add", "matmul", "softmax")
    functions = [(torch.nn.functional.linear, torch.nn.functional.gelu), tuple(getattr(torch, name) for name in names)]
    codes = [torch.nn.functional.layer_norm.__code__, torch.Tensor.__add__]
    training = Training(tmp_path / "out", {"control": {}, "format": ["csv", "journal"]})
    training.until(lambda: training.step == 3)
    found = training.dump(steps=2)
    first = found["first"]
    assert (found["stage"], found["steps"], found["ranks_failed"]) == ("done", 2, [])
    assert steps_in(training.captures) == [first, first + 1]
    assert [Path(one) for one in found["places"]] == [training.captures / f"step{first + n}/rank0" for n in (0, 1)]
    assert found["bytes"] > 0
    assert not hooks_of(training.net) and function_modes() == 0
    assert [torch.nn.functional.layer_norm.__code__, torch.Tensor.__add__] == codes
    again = [(torch.nn.functional.linear, torch.nn.functional.gelu), tuple(getattr(torch, name) for name in names)]
    assert again == functions
    training.watch.close()

    # The same as of a capture of the same step without a watch.
    twin, optimizer = tiny.training()
    capturing = trainmon.capture(twin, dump_path=str(tmp_path / "twin"), level="mix", step=[first], neutral=True)
    for step in range(training.step):
        with capturing:
            optimizer.zero_grad()
            tiny.loss_of(twin, step, 0).backward()
            optimizer.step()
    one = captured(training.captures, first)
    (place,) = (tmp_path / "twin" / f"step{first}").iterdir()
    expected = json.loads((place / "dump.json").read_text())["data"]
    assert list(one.entries) == list(expected)
    assert one.entries == expected
    # And the training is the same to the bit.
    assert all(torch.equal(a, b) for a, b in zip(training.parameters(), twin.parameters(), strict=True))

    assert one.request["asked"] == {"by": "ctl"}
    assert (one.request["step"], one.request["first_step"], one.request["is_whole"]) == (first, first, True)
    lines = one.steps_before
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(first))
    assert steps[0]["loss"] == pytest.approx(training.losses[0])
    gradients = [line for line in lines if line.get("kind") == "grad_reduced" and line["step"] == first - 1]
    assert {line["name"] for line in gradients} == {name for name, _ in twin.named_parameters()}
    assert not (training.captures / f"step{first + 1}/rank0/steps_before.jsonl").exists()
    assert captured(training.captures, first + 1).request["steps_before"] is None


def test_the_command_orders_waits_and_says_where_the_files_are(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", {"control": {}})

    def command(*words: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "trainmon", "ctl", str(training.captures.parent), *words]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(program, text=True, **pipes)

    waiting = command("dump", "--level", "L0", "--list", "head", "--wait")
    training.until(lambda: waiting.poll() is not None)
    said, failed = waiting.communicate()
    (step,) = steps_in(training.captures)
    assert waiting.returncode == 0, failed
    assert str(training.captures / f"step{step}/rank0") in said and "requested by trainmon ctl: done" in said
    assert set(captured(training.captures, step).entries) == {
        "Module.head.Linear.forward.0",
        "Module.head.Linear.backward.0",
        "Module.head.Linear.parameters_grad.0",
    }
    far = training.step + 100_000
    waits = command("dump", "--at", str(far), "--json")
    training.until(lambda: waits.poll() is not None)
    assert json.loads(waits.communicate()[0])["step"] == far
    # Agreed upon for a step to come, from which on the schedule has it.
    training.until(lambda: [one["stage"] for one in training.status()["captures"]] == ["done", "waiting"])
    wrong = command("dump", "--level", "L9")
    assert wrong.wait() == 2
    assert 'key `level`: expected one of `L0`, `L1`, `L2`, `mix`, found "L9"' in wrong.communicate()[1]
    nobody = command("--socket", str(tmp_path / "nowhere.sock"), "dump")
    assert nobody.wait() == 2
    training.watch.close()


def test_what_makes_no_sense_is_refused_and_captures_nothing(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", {"control": {}, "capture": {"max_captures": 2}})
    training.until(lambda: training.step == 4)
    for request, words in [
        ({"level": "debug"}, "key `level`: expected one of `L0`"),
        ({"task": "tenser"}, "did you mean `tensor`?"),
        ({"steps": 0}, "key `steps`"),
        ({"dump_path": "/tmp"}, "key `dump_path`"),
        ({"scope": ["a", "b"]}, "key `scope[0]`: expected an entry's full name"),
        ({"at": 2}, "step 2 has already begun: the current step is 4"),
    ]:
        _, said, hint = refusal_of(training.control, request)
        assert words in said and hint, f"{request}: {said}"
    # Two at once: one after the other.
    numbers = [control.ask(training.control, "POST", "/dump", "{}")["id"] for _ in range(2)]
    found = training.until(lambda: all(training.capture_of(number) for number in numbers))
    assert found and len(steps_in(training.captures)) == 2
    status, said, _ = refusal_of(training.control, {})
    assert status == 409 and "has reached its limit of captures: 2 (`capture.max_captures`)" in said
    training.watch.close()


def test_a_request_for_a_step_that_another_has_is_withdrawn(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", {"control": {}})
    training.make_step()
    first = control.ask(training.control, "POST", "/dump", json.dumps({"at": 500, "steps": 5}))["id"]
    training.until(lambda: training.status()["captures"])
    second = control.ask(training.control, "POST", "/dump", json.dumps({"at": 503}))["id"]

    def withdrawn() -> Any:
        return [one for one in training.status()["changes"] if one["id"] == second and one["stage"] == "withdrawn"]

    (change,) = training.until(withdrawn)
    assert "steps 500 to 504 are already being captured" in change["why"]
    # One that names no step goes before it, and other changes are made meanwhile.
    assert training.dump()["first"] < 500
    control.ask(training.control, "POST", "/pause")
    training.until(lambda: training.status()["plan"]["paused"])
    waiting = [one["id"] for one in training.status()["captures"] if one["stage"] == "waiting"]
    assert waiting == [first]
    training.watch.close()


def test_a_signal_asks_for_a_capture(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", capture={"level": "L1", "steps": 2})
    for _ in range(3):
        training.make_step()
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    training.until(lambda: len(steps_in(training.captures)) == 2)
    training.make_step()
    training.watch.close()
    first, second = steps_in(training.captures)
    assert second == first + 1
    one = captured(training.captures, first)
    assert one.request["asked"] == {"by": "signal", "rank": 0}
    assert not [name for name in one.entries if name.startswith("Module")]
    # There is no journal: of the steps before there are their numbers.
    assert [line["step"] for line in one.steps_before] == list(range(first))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_watch_that_was_collected_does_not_stand_before_another_that_listens(tmp_path: Path) -> None:
    def watched(place: str) -> tuple[trainmon.Watch, CaptureSignal]:
        training = Training(tmp_path / place, capture={"level": "L1"})
        listener = training.watch.captures
        assert listener is not None
        return training.watch, listener.signal

    forgotten, listener = watched("first")
    later, other = watched("second")
    assert CaptureSignal.first() is listener.monitor
    gone = weakref.ref(listener)
    forgotten.captures.signal = None
    del listener
    gc.collect()
    assert gone() is None
    assert CaptureSignal.first() is other.monitor
    later.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    forgotten.close()


@pytest.mark.parametrize("way", ["handler", "slurm", "off"])
def test_a_signal_that_is_the_hosts_stays_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []

    def theirs(number: int, _frame: Any) -> None:
        heard.append(number)

    if way == "handler":
        signal.signal(signal.SIGUSR1, theirs)
    if way == "slurm":
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    before = signal.getsignal(signal.SIGUSR1)
    net = tiny.model()
    watch = trainmon.watch(
        net,
        tiny.optimizer_of(net),
        config={"wg_distribution": True, "output_dir": str(tmp_path), "capture": {"signal": way != "off" and None}},
    )
    assert signal.getsignal(signal.SIGUSR1) is before
    if way == "handler":
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
        assert "SIGUSR1 cannot request a capture: the training handles this signal itself" in capfd.readouterr().err
    watch.close()


def test_editing_the_config_file_asks_for_a_capture_once_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "monitor.json"

    def says(**capture: Any) -> None:
        written = file.with_suffix(".new")
        settings = {"wg_distribution": True, "ops": ["norm"], "queue_steps": 4096, "capture": capture}
        written.write_text(json.dumps(settings))
        written.rename(file)

    says(level="L0")
    training = Training(tmp_path / "out", file, output_dir=tmp_path / "out")
    training.make_step()
    says(level="L0", request={"list": ["head"], "number": 1})
    training.until(lambda: steps_in(training.captures))
    (first,) = steps_in(training.captures)
    training.make_step()
    assert captured(training.captures, first).request["asked"] == {"by": "config"}
    assert "Module.head.Linear.forward.0" in captured(training.captures, first).entries
    # The same once more, and another one.
    says(level="L0", request={"list": ["head"], "number": 1}, max_captures=9)
    says(level="L0", request={"list": ["ln"], "number": 2})
    training.until(lambda: len(steps_in(training.captures)) == 2)
    training.make_step()
    training.watch.close()
    entries = captured(training.captures, steps_in(training.captures)[1]).entries
    assert entries and all("ln" in name for name in entries)


def test_a_request_in_the_config_of_the_start_is_fulfilled(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", capture={"request": {"at": 40, "level": "L0"}})
    training.until(lambda: training.step == 42)
    training.watch.close()
    assert steps_in(training.captures) == [40]


def test_an_alert_captures_the_next_steps_within_its_limits(tmp_path: Path) -> None:
    rule = {"rule_name": "NonFinite", "actions": ["log", "dump"]}
    capture = {"level": "L0", "steps": 2, "min_distance": 1_000_000}
    training = Training(tmp_path / "out", alert={"rules": [rule]}, capture=capture)
    for _ in range(3):
        training.make_step()
    before = training.parameters()
    training.make_step(float("nan"))
    at = training.step - 1
    with torch.no_grad():
        for one, value in zip(training.net.parameters(), before, strict=True):
            one.copy_(value)
    training.optimizer.state.clear()
    training.until(lambda: len(steps_in(training.captures)) == 2)
    # It is over, and begins anew: too soon for another capture.
    for _ in range(20):
        training.make_step()
    training.make_step(float("nan"))
    for _ in range(10):
        training.make_step()
    training.watch.close()
    steps = steps_in(training.captures)
    assert len(steps) == 2 and steps[0] > at
    request = captured(training.captures, steps[0]).request
    alert = request["asked"]["alert"]
    assert (request["asked"]["by"], alert["rule"], alert["step"], alert["value"]) == ("alert", "NonFinite", at, "NaN")
    assert alert["message"]


def test_budgets_end_captures_politely(tmp_path: Path) -> None:
    config = {"control": {}, "capture": {"budget_mib": 1, "task": "tensor", "max_captures": 100}}
    training = Training(tmp_path / "out", config)
    training.make_step()
    found = training.dump()
    assert found["stage"] == "failed" and "budget" in found["why"], found
    status, said, _ = refusal_of(training.control, {})
    assert status == 409 and "have reached their limit of 1 MiB" in said
    size = sum(one.stat().st_size for one in training.captures.rglob("*") if one.is_file())
    assert size < 3 << 20
    training.watch.close()


def test_without_a_word_about_captures_nobody_asks_and_nothing_is_there(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    training = Training(tmp_path / "out")
    assert training.watch.captures is None and signal.getsignal(signal.SIGUSR1) is before
    training.make_step()
    training.watch.close()
    off = Training(tmp_path / "off", {"control": {}, "capture": {"enabled": False}})
    assert "captures are disabled" in refusal_of(off.control, {})[1]
    off.watch.close()


def test_a_watch_that_ends_in_the_middle_of_a_captured_step_keeps_what_there_is(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", {"control": {}})
    training.make_step()
    control.ask(training.control, "POST", "/dump", json.dumps({"steps": 1000}))
    training.until(lambda: steps_in(training.captures))
    tiny.loss_of(training.net, 0, 0)
    training.watch.close()
    assert function_modes() == 0
    last = captured(training.captures, steps_in(training.captures)[-1])
    assert not last.request["is_whole"] and "closed in the middle" in last.request["why"]
    assert any(name.endswith("forward.0") for name in last.entries)


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_all_ranks_capture_the_same_step(tmp_path: Path, way: str) -> None:
    run_ranks("on_demand_ranks.py", 2, tmp_path, way)
    answer = json.loads((tmp_path / "answer.json").read_text())
    root = Path(answer["captures"])
    by_ctl, by_signal = answer["ctl"], answer["signal"]
    assert by_ctl["ranks_done"] == [1] and by_ctl["ranks_failed"] == [] and by_signal["ranks_done"] == [1]
    assert steps_in(root) == sorted({by_ctl["first"], by_ctl["first"] + 1, by_signal["first"]})
    for step in steps_in(root):
        both = [captured(root, step, rank) for rank in range(2)]
        assert list(both[0].entries) == list(both[1].entries)
        for rank, one in enumerate(both):
            assert one.request["rank"] == rank and one.request["is_whole"]
            assert one.request["asked"] == both[0].request["asked"]
    assert captured(root, by_signal["first"], 0).request["asked"] == {"by": "signal", "rank": 1}
    entries = [captured(root, by_ctl["first"], rank).entries for rank in range(2)]
    # The first of the step is the one behind the optimizer's step.
    collective = "Distributed.all_reduce.1.forward"
    outs = [one[collective]["output"][0] for one in entries]
    # An asynchronous one: what comes out is what it completed with, the same on both ranks.
    assert outs[0]["Max"] == outs[1]["Max"] == 3.0
    ins = [one[collective]["input_args"][0]["Max"] for one in entries]
    assert ins == [1.0, 2.0]
    groups = [one[collective]["input_kwargs"]["group"] for one in entries]
    assert groups[0] == groups[1] and groups[0]["group_ranks"] == [0, 1]
    if way == "fsdp2":
        assert_fsdp_sends(entries)


def assert_fsdp_sends(entries: list[dict[str, Any]]) -> None:
    """Parameters are put together from both ranks' shards, gradients are added up and scattered: before and after."""
    gathers = [name for name in entries[0] if name.startswith("Distributed.all_gather_into_tensor.")]
    scatters = [name for name in entries[0] if name.startswith("Distributed.reduce_scatter_tensor.")]
    assert len(gathers) >= 2 and len(scatters) >= 2, list(entries[0])
    for name in gathers:
        whole = [one[name]["output"][0] for one in entries]
        shards = [one[name]["input_args"][1] for one in entries]
        assert whole[0] == whole[1] and whole[0]["shape"] == [2 * shards[0]["shape"][0]]
        assert whole[0]["Max"] == max(shard["Max"] for shard in shards)
    for name in scatters:
        came, left = entries[0][name]["input_kwargs"]["input"], entries[0][name]["output"]
        assert any(one is not None and one.get("shape") == [came["shape"][0] // 2] for one in left)


def test_megatron_captures_one_same_step_on_both_ranks(tmp_path: Path) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    run_ranks("on_demand_megatron.py", 2, tmp_path)
    answer = json.loads((tmp_path / "answer.json").read_text())
    root = Path(answer["captures"])
    capture = answer["ctl"]
    assert capture["stage"] == "done" and capture["ranks_done"] == [1]
    assert steps_in(root) == [capture["first"]]
    both = [captured(root, capture["first"], rank) for rank in range(2)]
    for rank, one in enumerate(both):
        assert (one.request["rank"], one.request["step"], one.request["is_whole"]) == (rank, capture["first"], True)
        assert any(name.startswith("Module.") and name.endswith("backward.0") for name in one.entries)
    # The norms of parameters that both ranks have are one rank's work: the optimizer's functions differ.
    modules = [[name for name in one.entries if name.startswith("Module.")] for one in both]
    assert modules[0] == modules[1]


def test_a_training_written_for_msprobe_captures_the_model_that_its_monitor_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    monkeypatch.setenv("TRAINMON_RUN_NAME", "ours")
    file = tmp_path / "monitor.json"
    file.write_text(json.dumps({"wg_distribution": True, "capture": {"request": {"at": 2, "level": "L0"}}}))
    net, optimizer = tiny.training()
    monitor = trainmon.TrainerMon(file, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    tiny.train(net, optimizer, 4)
    monitor.close()
    root = tmp_path / "out" / "captures-ours"
    assert steps_in(root) == [2]
    assert "Module.layers.1.Block.forward.0" in captured(root, 2).entries


def test_a_step_that_the_scaler_leaves_out_is_captured_once(tmp_path: Path) -> None:
    training = Training(tmp_path / "out", capture={"request": {"at": 2, "steps": 2, "level": "L0"}})
    for _ in range(2):
        training.make_step()
    training.optimizer.zero_grad()
    tiny.loss_of(training.net, 2, 0).backward()
    # The loop's own scaler found an overflow: the next attempt has the same number.
    training.watch.skip_step()
    assert function_modes() == 0
    first = captured(training.captures, 2)
    training.make_step()
    training.make_step()
    training.watch.close()
    assert steps_in(training.captures) == [2, 3]
    assert len(list((training.captures / "step2").iterdir())) == 1
    assert first.entries and captured(training.captures, 2).entries == first.entries
    assert not any("tokens.Embedding.forward.1" in name for name in first.entries)
