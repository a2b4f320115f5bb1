"""A step that an alert is about is run again under capture, as it was, and leaves no trace in the training."""

from __future__ import annotations

import gc
import json
import re
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import trainmon
from support import runs
from support.on_demand import captured, steps_in
from support.ranks import run_alone, run_ranks
from support.torch_inside import set_default_store
from trainmon.replay import agreement

STEPS, FAULT = 24, 12
RULES = {"rules": [{"rule_name": "NonFinite", "actions": ["log", "replay"]}]}


class Net(nn.Module):
    """Has what a step changes besides parameters: running means, and a random generator."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(self.norm(self.first(x)).relu(), 0.2)
        x = self.last(self.frozen(x))
        # Of a negative number it is NaN.
        logarithm: torch.Tensor = torch.log(x * x + 1.0)
        return logarithm


class Training:
    """A training of which every part can be compared with that of another one."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.calls = 0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.optimizer.zero_grad()
        loss = self.net(x).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def bits(self) -> bytes:
        state = [*self.net.state_dict().values()]
        state += [one for group in self.optimizer.state.values() for one in group.values()]
        state.append(torch.rand(3))
        return b"".join(one.detach().contiguous().numpy().tobytes() for one in state)


def batches(fault: int = FAULT) -> Iterator[torch.Tensor]:
    """One is infinite, in memory that the next one is written into."""
    generator, memory = torch.Generator().manual_seed(5), torch.empty(16, 4)
    for number in range(STEPS):
        memory.normal_(generator=generator)
        if number == fault:
            memory[3, 1] = float("inf")
        yield memory


def trained(loop: Any, step: Callable[..., Any], pause: float = 0.02) -> bytes:
    torch.manual_seed(11)
    for x in batches():
        step(x)
        time.sleep(pause)
    return bytes(loop.bits())


def watched(
    place: Path, loop: Any, *, capture: Any = None, config: Any = None, **keys: Any
) -> tuple[trainmon.Watch, Callable[..., Any]]:
    whole = {"wg_distribution": True, "ops": ["norm", "nans"], "output_dir": str(place), "alert": RULES}
    whole |= {"capture": {"replay": 6, "task": "statistics", **(capture or {})}} | (config or {})
    watch = trainmon.watch(loop.net, loop.optimizer, config=whole, **keys)
    return watch, watch.step_fn(loop.step)


def captures_of(watch: trainmon.Watch) -> Path:
    return Path(watch.monitor.run_directory or "") / "captures"


def told(text: str, beginning: str) -> str:
    lines = [line for line in text.splitlines() if beginning in line]
    assert len(lines) == 1, text
    return lines[0]


def replayed(watch: trainmon.Watch, step: int = FAULT) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries and the request of the one capture there is."""
    assert steps_in(captures_of(watch)) == [step]
    found = captured(captures_of(watch), step)
    assert found.request["is_replay"] and found.request["step"] == step < found.request["first_step"]
    return found.entries, found.request


def test_the_step_is_captured_as_it_was_and_the_training_has_the_same_bits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = Training()
    expected = trained(plain, plain.step, 0)
    loop = Training()
    watch, step = watched(tmp_path / "run", loop)
    assert trained(loop, step) == expected
    watch.close()
    assert loop.calls == STEPS + 1
    entries, request = replayed(watch)
    assert request["is_whole"] and request["replayed"] == {"same_loss": True, "is_finite": False}
    sentence = told(capfd.readouterr().err, "captured step")
    assert f"captured step {FAULT}, replayed before step" in sentence
    assert "its loss is bitwise equal to that of the first run" in sentence
    # What a capture of this very step shows, up to the optimizer.
    direct = Training()
    capturing = trainmon.capture(direct.net, dump_path=str(tmp_path / "direct"), level="mix", step=[FAULT], quiet=True)
    torch.manual_seed(11)
    for x in batches():
        with capturing:
            direct.step(x)
    (file,) = (tmp_path / "direct" / f"step{FAULT}").rglob("dump.json")
    truth = json.loads(file.read_text())["data"]
    assert list(entries) == [name for name in truth if name in entries]
    assert json.dumps(entries) == json.dumps({name: truth[name] for name in entries})
    # AdamW's own: it has one for each of six parameters.
    left_out = [name for name in truth if name not in entries]
    assert {name for name in left_out if name.startswith(("Module", "Functional"))} == set()
    assert sum(name.startswith("Tensor.addcdiv_") for name in left_out) == 6


def test_what_does_not_come_again_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Flipped(Training):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.net(x.nan_to_num(posinf=1.0)).mean()
            loss.backward()
            if self.calls == FAULT:
                # As a broken memory would: not when the step is run again.
                self.net.last.weight.grad[0, 0] = float("nan")  # type: ignore[index]
            self.calls += 1
            self.optimizer.step()
            return loss.detach()

    plain, loop = Flipped(), Flipped()
    expected = trained(plain, plain.step, 0)
    watch, step = watched(tmp_path, loop)
    assert trained(loop, step) == expected
    watch.close()
    assert replayed(watch)[1]["replayed"] == {"same_loss": True, "is_finite": True}
    assert "its loss and gradients are finite" in told(capfd.readouterr().err, "captured step")


class MicroBatches(Training):
    """Two calls make a step, and draw from an iterator; a scaler scales the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    def step(self, drawn: Iterator[torch.Tensor]) -> None:
        loss = self.net(next(drawn)).mean() / 2
        self.scaler.scale(loss).backward()
        self.calls += 1


def test_micro_batches_an_iterator_and_a_scaler(tmp_path: Path) -> None:
    def train(loop: MicroBatches, step: Callable[..., Any], pause: float) -> bytes:
        torch.manual_seed(11)
        drawn = batches(2 * 7 + 1)
        for _ in range(STEPS // 2):
            for _ in range(2):
                step(drawn)
            loop.scaler.unscale_(loop.optimizer)
            # A loop that does not leave the step out.
            loop.scaler._per_optimizer_states[id(loop.optimizer)]["found_inf_per_device"] = {
                torch.device("cpu"): torch.zeros(())
            }
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()
            loop.optimizer.zero_grad()
            time.sleep(pause)
        return loop.bits() + bytes(str(loop.scaler.state_dict()), "utf-8")

    plain, loop = MicroBatches(), MicroBatches()
    expected = train(plain, plain.step, 0)
    watch, step = watched(tmp_path, loop, grad_acc_steps=2)
    assert train(loop, step, 0.03) == expected
    watch.close()
    entries, request = replayed(watch, 7)
    assert request["replayed"] == {"same_loss": True, "is_finite": False}
    assert loop.calls == STEPS + 2
    assert "Module.first.Linear.forward.1" in entries


def test_a_closure(tmp_path: Path) -> None:
    class Closure(Training):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            def closure() -> torch.Tensor:
                self.calls += 1
                self.optimizer.zero_grad()
                loss: torch.Tensor = self.net(x).mean()
                loss.backward()
                return loss

            return self.optimizer.step(closure)  # type: ignore[return-value]

    plain, loop = Closure(), Closure()
    expected = trained(plain, plain.step, 0)
    watch, step = watched(tmp_path, loop)
    assert trained(loop, step) == expected
    watch.close()
    assert replayed(watch)[1]["replayed"] == {"same_loss": True, "is_finite": False}


class Two(Training):
    """A second model, with an optimizer that steps first, and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.its = torch.optim.SGD(self.other.parameters(), lr=0.1)
        self.steps_other = True

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.its.zero_grad()
        self.other(x.nan_to_num(posinf=1.0)).square().mean().backward()
        if self.steps_other:
            self.its.step()
        return super().step(x)

    def bits(self) -> bytes:
        return b"".join(one.numpy().tobytes() for one in self.other.state_dict().values()) + super().bits()


@pytest.mark.parametrize("steps_other", [True, False])
def test_another_optimizer_steps_nothing_and_another_models_buffers_are_put_back(
    tmp_path: Path, steps_other: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    plain, loop = Two(), Two()
    plain.steps_other = loop.steps_other = steps_other
    expected = trained(plain, plain.step, 0)
    watch, _ = watched(tmp_path, loop)
    assert trained(loop, watch.step_fn(loop.step, modules=loop.other)) == expected
    watch.close()
    request = captured(captures_of(watch), FAULT).request
    assert request["is_whole"] is not steps_other
    if steps_other:
        assert "the step of another optimizer came first" in request["why"]
        assert f"the capture of step {FAULT}, replayed before step" in capfd.readouterr().err


def test_a_step_that_raises_when_it_is_run_again(tmp_path: Path) -> None:
    class Raising(Training):
        watch: trainmon.Watch | None = None

        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.net(x).mean()
            if self.watch is not None and self.watch.replay is not None and self.watch.replay.is_running:
                raise FloatingPointError("loss is not finite")
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    plain, loop = Raising(), Raising()
    expected = trained(plain, plain.step, 0)
    loop.watch, step = watched(tmp_path, loop)
    assert trained(loop, step) == expected
    loop.watch.close()
    request = captured(captures_of(loop.watch), FAULT).request
    assert request["why"] == "the replay raised FloatingPointError: loss is not finite"


def test_where_no_step_is_kept_the_next_one_is_captured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loop = Training()
    watch, _ = watched(tmp_path, loop)
    trained(loop, loop.step)
    watch.close()
    (step,) = steps_in(captures_of(watch))
    assert FAULT < step <= FAULT + 3
    assert not captured(captures_of(watch), step).request["is_replay"]
    sentence = f"cannot replay step {FAULT}; capturing step {step} instead"
    text = capfd.readouterr().err
    assert told(text, "cannot replay").endswith(sentence)
    assert "hint: to keep steps for a replay, call them through `watch.step_fn`" in text


def test_nothing_is_kept_where_nobody_asks(tmp_path: Path) -> None:
    loop = Training()
    watch, step = watched(tmp_path, loop, config={"alert": {"rules": []}}, capture={"replay": 0})
    assert step == loop.step
    watch.close()


def test_a_failure_to_keep_a_step_is_told_once_and_the_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, loop = Training(), Training()
    expected = trained(plain, plain.step, 0)
    watch, step = watched(tmp_path, loop)

    def fails(*_arguments: Any, **_keywords: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("trainmon.replay.replay.Values", fails)
        assert trained(loop, step) == expected
    watch.close()
    text = capfd.readouterr().err
    assert "hook `replay` failed and is off from now on" in told(text, "hook `replay`")
    assert "cannot replay" in told(text, "cannot replay")


def test_ranks_meet_or_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, as ranks that come one behind the other."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    set_default_store(monkeypatch, store)
    assert not agreement.all_come("a", patience_s=0.05)
    assert not agreement.all_come("a", patience_s=0.05), "the first one has gone on"
    store.add("trainmon/replay/b/come", 1)
    assert agreement.all_come("b", patience_s=0.05)
    assert store.get("trainmon/replay/b/answer") == b"go"


@pytest.mark.parametrize("kind", ["ddp", "tp", "pp", "late"])
def test_all_ranks_run_the_same_step_again(tmp_path: Path, kind: str) -> None:
    """The script compares the training with that of an unwatched run, bit by bit."""
    said = run_ranks("replay_ranks.py", 2, tmp_path, kind, timeout=300)
    if kind == "late":
        assert said.count("not every rank was ready for the replay") == 2, said
        return
    answer = json.loads((tmp_path / "answer.json").read_text())
    for rank in range(2):
        found = captured(Path(answer["captures"]), answer["fault"], rank)
        assert found.request["is_whole"], found.request
        # The stages of a pipeline tell nobody what their backward passes begin from.
        same = None if kind == "pp" else True
        assert found.request["replayed"] == {"same_loss": same, "is_finite": False}
        assert found.request["asked"]["replay"] is True


@pytest.mark.parametrize("kind", ["transformers", "lightning"])
def test_trainers_of_other_libraries_run_a_step_again(tmp_path: Path, kind: str) -> None:
    """The script compares the training with that of an unwatched run, bit by bit."""
    pytest.importorskip("transformers" if kind == "transformers" else "lightning", reason=f"{kind} is not installed")
    run_alone("replay_trainers.py", tmp_path, kind)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert steps_in(Path(answer["captures"])) == [answer["fault"]]
    found = captured(Path(answer["captures"]), answer["fault"])
    assert found.request["is_whole"], found.request
    assert found.request["replayed"] == {"same_loss": True, "is_finite": False}
    backward = [name for name in found.entries if name.endswith("Linear.backward.0")]
    assert len(backward) == 2


def test_the_example_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[4] / "docs" / "capture.md").read_text()
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "step_fn" in block]
    monkeypatch.chdir(tmp_path)
    # The tenth batch is spoilt, and steps take as long as it takes to hear of it.
    spoilt = example.replace("    train_step(batch)", "    train_step(spoilt(batch))")
    number = iter(range(100))

    def spoilt_tenth(batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)
        return batch * float("nan") if next(number) == 10 else batch

    assert spoilt != example
    scope: dict[str, Any] = {"spoilt": spoilt_tenth}
    exec(compile(spoilt, "capture.md", "exec"), scope)
    entries, _ = replayed(scope["watch"], 10)
    assert "Module.0.Linear.forward.0" in entries


class Reassigned(Training):
    """A module that puts another tensor into its buffer in each forward pass; and the graph of its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net.register_buffer("ema", torch.zeros(()))
        self.net.register_forward_hook(self.follow)

    def follow(self, net: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        net.ema = 0.9 * net.ema + output.detach().nan_to_num().mean()


def test_a_buffer_that_is_another_tensor_after_each_step(tmp_path: Path) -> None:
    plain, loop = Reassigned(), Reassigned()
    expected = trained(plain, plain.step, 0)
    watch, step = watched(tmp_path, loop)
    assert trained(loop, step) == expected
    watch.close()
    assert replayed(watch)[1]["replayed"] == {"same_loss": True, "is_finite": False}


def test_a_call_whose_argument_has_a_graph_is_not_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def train(loop: Training, finish: Callable[[torch.Tensor], Any], pause: float) -> bytes:
        def step(x: torch.Tensor) -> None:
            loop.optimizer.zero_grad()
            finish(loop.net(x).mean())

        return trained(loop, step, pause)

    def finishing(loop: Training) -> Callable[[torch.Tensor], None]:
        def finish(loss: torch.Tensor) -> None:
            loss.backward()
            loop.optimizer.step()

        return finish

    plain, loop = Training(), Training()
    expected = train(plain, finishing(plain), 0)
    watch, _ = watched(tmp_path, loop)
    assert train(loop, watch.step_fn(finishing(loop)), 0.02) == expected
    watch.close()
    assert "an argument was computed by the model before the call" in told(capfd.readouterr().err, "is incomplete")


def test_a_watch_that_is_closed_keeps_nothing(tmp_path: Path) -> None:
    loop = Training()
    watch, step = watched(tmp_path, loop)
    drawn = batches()
    for _ in range(3):
        step(next(drawn))
    replay = watch.replay
    assert replay is not None and replay.steps_kept == 3
    watch.close()
    batch = next(drawn).clone()
    reference = weakref.ref(batch)
    step(batch)
    del batch
    gc.collect()
    assert reference() is None and replay.steps_kept == 0


def test_another_watch_measures_nothing_of_it(tmp_path: Path) -> None:
    loop = Training()
    other = nn.Linear(4, 1)
    its = torch.optim.SGD(other.parameters(), lr=0.1)

    def both(x: torch.Tensor) -> None:
        its.zero_grad()
        other(x.nan_to_num(posinf=1.0)).square().mean().backward()
        loop.step(x)
        if not (watch.replay is not None and watch.replay.is_running):
            its.step()

    config = {"wg_distribution": True, "ops": ["norm"], "output_dir": str(tmp_path / "other")}
    second = trainmon.watch(other, its, config=config)
    watch, _ = watched(tmp_path / "own", loop)
    trained(loop, watch.step_fn(both, modules=other))
    watch.close()
    assert f"observed {4 * STEPS} tensors" in second.close()
    lines = runs.steps(Path(second.monitor.rank_directory or ""))
    assert [int(line["step"]) for line in lines] == list(range(STEPS))
    assert {line["skipped_steps"] for line in lines} == {"0"}
