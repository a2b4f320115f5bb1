"""Alerts in PyTorch trainings: one ends them, on all ranks; what the rules remember goes into a checkpoint."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import trainmon
from support import tiny
from support.ranks import run_ranks
from support.runs import findings
from trainmon import TrainerMon, TrainerMonitorV2

#: The step whose gradient is too large, after enough steps for the rule to know what is usual.
SAMPLES, SPIKE = 8, 12

SPIKE_RULE = {"rule_name": "Spike", "args": {"min_samples": SAMPLES}, "on": {"scope": "global", "signal": "grad"}}


def config(place: Path, *rules: dict[str, Any]) -> dict[str, Any]:
    alert = {"rules": list(rules), "dump": True}
    return {"wg_distribution": True, "ops": ["norm"], "output_dir": str(place), "alert": alert, "queue_steps": 1024}


def config_file(place: Path, *rules: dict[str, Any]) -> Path:
    place.mkdir(exist_ok=True)
    file = place / "monitor.json"
    file.write_text(json.dumps(config(place, *rules)))
    return file


class Way:
    """One way of watching a training: how it begins, and what asks it for its state."""

    def __init__(self, name: str, place: Path) -> None:
        self.place = place
        file = config_file(place, SPIKE_RULE)
        self.net = tiny.model()
        self.optimizer = tiny.optimizer_of(self.net)
        self.monitor: Any
        self.begin: Callable[[int], Any]
        self.is_loaded_before = name.endswith("before")
        if name == "watch":
            # Nothing is there to load into before it begins.
            self.begin = self._watch
        elif name == "v2":
            self.monitor = TrainerMonitorV2(_v2(file))
            self.begin = lambda _first: self.monitor.start(self.net, self.optimizer)
        else:
            self.monitor = TrainerMon(file, params_have_main_grad=False)
            self.begin = lambda first: self.monitor.set_monitor(
                self.net, optimizer=self.optimizer, start_iteration=first
            )

    def close(self) -> None:
        """Ends the watch."""
        (self.monitor.stop if isinstance(self.monitor, TrainerMonitorV2) else self.monitor.close)()

    def _watch(self, first: int) -> None:
        file = self.place / "monitor.json"
        self.monitor = trainmon.watch(self.net, self.optimizer, config=file, start_iteration=first)


def _v2(file: Path) -> Path:
    """The same in the words of msprobe's second monitor."""
    old = json.loads(file.read_text())
    new = {key: old[key] for key in ("output_dir", "alert")}
    file.write_text(json.dumps({**new, "monitors": {"weight_grad": {"enabled": True, "ops": ["norm"]}}}))
    return file


def through_torch(state: Any) -> Any:
    saved = io.BytesIO()
    torch.save(state, saved)
    saved.seek(0)
    return torch.load(saved, weights_only=True)


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


@pytest.mark.parametrize(
    ("way", "through"),
    [
        ("watch", through_torch),
        ("watch", through_json),
        ("watch", None),
        ("TrainerMon, loaded after", through_json),
        ("TrainerMon, loaded before", through_torch),
        ("TrainerMon, loaded before", None),
        ("v2", through_torch),
    ],
)
def test_what_was_usual_is_known_again_after_a_resume(
    way: str, through: Callable[[Any], Any] | None, tmp_path: Path
) -> None:
    first = Way(way, tmp_path / "first")
    first.begin(0)
    tiny.train(first.net, first.optimizer, range(SPIKE))
    state = first.monitor.state_dict()
    first.close()
    assert findings(first.place) == []

    second = Way(way, tmp_path / "second")
    if through and second.is_loaded_before:
        second.monitor.load_state_dict(through(state))
        assert second.monitor.state_dict() == state, "not lost before the training begins"
    second.begin(SPIKE)
    if through and not second.is_loaded_before:
        second.monitor.load_state_dict(through(state))
    tiny.train(second.net, second.optimizer, range(SPIKE, SPIKE + 2), factors={SPIKE: 1000})
    second.close()
    # The second monitor of msprobe counts from zero.
    spike = 0 if way == "v2" else SPIKE
    assert findings(second.place) == ([spike] if through else [])


def states_that_are_none() -> Iterator[Any]:
    yield from (
        [],
        7,
        "text",
        '{"version": 1}',
        torch.ones(2),
        {"alerts": torch.ones(2)},
        {"alerts": 7},
        {"alerts": {"version": 999}},
        {"alerts": json.dumps({"version": 1})},
        {"alerts": {"what": object()}},
        {"alerts": {"what": float("nan")}},
        {"elsewhere": 1},
        {1: 2},
    )
    itself: dict[str, Any] = {}
    itself["alerts"] = itself
    yield itself
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    yield {"alerts": deep}


@pytest.mark.parametrize("way", ["watch", "TrainerMon, loaded after", "v2"])
def test_a_state_that_is_none_is_warned_of_and_training_goes_on(
    way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watched = Way(way, tmp_path)
    watched.begin(0)
    capfd.readouterr()
    for state in states_that_are_none():
        watched.monitor.load_state_dict(state)
        said = capfd.readouterr().err
        assert said.count("cannot restore the alert state") == said.count("  hint: ") == 1, said
    tiny.train(watched.net, watched.optimizer, range(SPIKE + 1), factors={SPIKE: 1000})
    watched.close()
    assert "is off from now on" not in capfd.readouterr().err
    assert findings(watched.place) == [SPIKE], "they learnt anew"


def test_a_state_that_is_none_waits_for_the_training_to_be_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for state in ([torch.ones(2)], {"watches": [7]}, {"watches": 7}, "text"):
        watched = Way("TrainerMon, loaded before", tmp_path)
        watched.monitor.load_state_dict(state)
        watched.begin(0)
        said = capfd.readouterr().err
        assert said.count("cannot restore the alert state") == 1, said
        watched.close()


@pytest.mark.parametrize("state", [None, {}, {"alerts": None}], ids=repr)
def test_nothing_saved_changes_nothing(state: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for way in ("watch", "TrainerMon, loaded before"):
        watched = Way(way, tmp_path / way)
        if watched.is_loaded_before:
            watched.monitor.load_state_dict(state)
        watched.begin(0)
        watched.monitor.load_state_dict(state)
        tiny.train(watched.net, watched.optimizer, range(2))
        watched.close()
    assert "warning" not in capfd.readouterr().err


def test_states_go_to_their_own_watches(tmp_path: Path) -> None:
    """Of two trainings the second is spoilt: it alone finds it."""
    states = []
    for part in ("first", "second"):
        place = tmp_path / part
        monitor = TrainerMon(config_file(place, SPIKE_RULE), params_have_main_grad=False)
        if states:
            monitor.load_state_dict(through_json(states[0]))
        first = SPIKE if states else 0
        for number, scale in enumerate((1.0, 100.0)):
            net, optimizer = tiny.training()
            monitor.set_monitor(net, optimizer=optimizer, start_iteration=first)
            for step in range(first, first + SPIKE):
                optimizer.zero_grad()
                # What is usual in the second training is a spike in the first.
                is_spoilt = bool(states) and number == 0 and step == SPIKE
                (tiny.loss_of(net, step, 0) * (100.0 if is_spoilt else scale)).backward()
                optimizer.step()
        states.append(monitor.state_dict())
        monitor.close()
    assert len(states[0]["watches"]) == 2
    assert findings(tmp_path / "first") == []
    assert findings(tmp_path / "second") == [SPIKE]


@pytest.mark.parametrize("way", ["watch", "TrainerMon, loaded after", "v2"])
@pytest.mark.parametrize("actions", [["log", "stop"], ["log"]])
def test_only_an_alert_with_stop_asks_the_training_to_end(way: str, actions: list[str], tmp_path: Path) -> None:
    watched = Way(way, tmp_path)
    file = tmp_path / "monitor.json"
    settings = json.loads(file.read_text())
    settings["alert"]["rules"] = [{"rule_name": "NonFinite", "actions": actions}]
    file.write_text(json.dumps(settings))
    assert way == "watch" or not watched.monitor.stop_requested
    watched.begin(0)
    tiny.train(watched.net, watched.optimizer, range(3))
    watched.monitor.state_dict()
    assert not watched.monitor.stop_requested, "the state has every step: nothing was found"
    tiny.train(watched.net, watched.optimizer, range(3, 4), factors={3: float("nan")})
    watched.monitor.state_dict()
    assert watched.monitor.stop_requested is ("stop" in actions)
    watched.close()
    assert findings(tmp_path)[0] == 3


def test_an_alert_of_one_rank_ends_the_training_of_both_at_one_step(tmp_path: Path) -> None:
    run_ranks("alert_stop.py", 2, tmp_path)
    left = [json.loads((tmp_path / f"left{rank}.json").read_text()) for rank in range(2)]
    assert left[0] == left[1] and left[0] > 60, "the ranks left after the same step, after the one that was spoilt"
    assert findings(tmp_path, 0) == [], "rank 0 itself found nothing"
    assert findings(tmp_path, 1)[0] == 60


def test_a_reduction_gone_wrong_is_found_in_the_layers_and_named_and_so_is_the_rank_that_spoilt_one(
    tmp_path: Path,
) -> None:
    said = run_ranks("alert_reduction.py", 2, tmp_path)
    found: list[set[tuple[int, str]]] = []
    for rank in range(2):
        file = tmp_path / "anomaly_detected" / f"rank{rank}" / "anomaly.json"
        entries = json.loads(file.read_text()).values()
        found.append({(entry["step"], entry["tag_name"].rpartition("/")[2]) for entry in entries})
    assert found[0] == {(20, "post_grad"), (40, "post_grad")}, "rank 0's own gradients were calm all along"
    assert found[1] == {(20, "post_grad"), (40, "grad"), (40, "post_grad")}
    alerts = [line for line in said.splitlines() if "moved first: " in line]
    named = set()
    for line in alerts:
        rank = 0 if "on rank 0" in line else 1
        first = re.search(r"moved first: (\S+)(?: of \S+)?(.*?) at step (\d+)", line)
        assert first is not None, line
        named.add((rank, int(first[3]), first[1] + first[2]))
    after = "gradient after reduction"
    expected = {(0, 20, after), (1, 20, after), (0, 40, after), (1, 40, "loss")}
    assert named == expected, said
