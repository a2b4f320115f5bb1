"""Twelve planted faults and eight clean trainings: the first sentence names fault, step, place and rank.

The first sentence is that of the message which an alert sends, and that with which `trainmon report` begins.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.alert_servers import Webhook
from support.command import trainmon
from support.matrix import IS_FULL
from support.ranks import run_alone, run_ranks_of_which_some_die


@dataclass(frozen=True)
class Expected:
    """What the first sentences are to say; `None`: no alert is sent."""

    message: str | None
    report: str


#: Where the numbers are not those of the fault alone, any number will do.
N = r"[-+.\de]+"
EXPECTED = {
    "batch": Expected(
        rf"Spike: (loss|gradient norm) is {N} times its usual value at step 130 on rank 0 .*; moved first: "
        r"actv of the model's input at step 130 \(norm 0, ",
        r"One (alert|incident \(2 alerts\)): Spike: .* at step 130 on rank 0 .* actv of the model's input at step 130",
    ),
    "log_of_zero": Expected(
        r"NonFinite: loss is inf at step 130 on rank 0; moved first: loss at step 130 \(inf, usually ",
        r"One alert: NonFinite: loss is inf at step 130 on rank 0",
    ),
    "group_rate": Expected(
        r"Spike: update norm .* at step 130 on rank 0 .*; moved first: learning rate at step 130 ",
        r"One incident \(2 alerts\): Spike: update norm .*moved first: learning rate at step 130 "
        r".*It is very likely .* learning_rate rises at step 130",
    ),
    "initialisation": Expected(
        None,
        rf"No alert. The parameter norm of h\.1\.fc\.weight is {N} times the median of the 2 others named "
        r"h\.\*\.fc\.weight",
    ),
    "fp16_overflow": Expected(
        r"NonFinite: actv norm is (NaN|inf) at step 130 on rank 0; "
        r"moved first: actv of `h\.2\.proj\.input` at step 130 ",
        r"One incident \(\d+ alerts\): NonFinite: actv .*It is certain that actv norm of h\.2\.proj\.input "
        r"is not finite at step 130",
    ),
    "dead_head": Expected(
        r"Dead: gradient norm of `head\.weight` has been exactly 0 for 10 steps, up to step 139 on rank 0; "
        r"moved first: actv of the model's output at step 130 \(norm 0, ",
        r"2 incidents \(\d+ alerts\), the first: Dead: gradient norm of `head\.weight` "
        r".*actv norm of the model's output falls at step 130",
    ),
    "frozen_layer": Expected(
        None,
        r"No alert. No gradient of layer h\.1 \(12 tensors\) was measured after step 129 on rank 0; other layers have",
    ),
    "loader_stall": Expected(None, rf"No alert. Step 130 took {N} s on rank 0, {N} times the median step"),
    "loss_scale": Expected(
        rf"Spike: loss is {N} times its usual value at step 130 on rank 0 \(1\d\d, .*; moved first: loss at step 130 ",
        r"One incident \(2 alerts\): Spike: loss .*It is very likely .* that loss rises at step 130 on rank 0",
    ),
    "warm_up": Expected(
        r"UpdateRatio: update_ratio of layer \S+ .* at step 9 on rank 0 \(alert above 0\.01\)",
        r"(One incident|\d incidents) \(\d+ alerts\)(, the first)?: UpdateRatio: update_ratio of layer "
        r"\S+ .* at step 9 on rank 0",
    ),
}


#: Of a fault on rank 1 alone: what a job of two ranks sends when it begins and when it is over.
FIRST_MESSAGE_OF_A_JOB = {
    "nan_on_one_rank": (
        r"NonFinite: loss is NaN at step 130 on rank 1; moved first: loss at step 130 .*; also on rank 0$",
        None,
    ),
    "spike_on_one_rank": (
        (
            rf"Spike: loss is {N} times its usual value at step 130 on rank 1 .*; "
            r"moved first: loss at step 130 .*; also on rank 0$"
        ),
        r"Spike: loss has been back to normal since step \d+ on rank 1.*; also back to normal: rank 0$",
    ),
}


@dataclass(frozen=True)
class Job:
    """One of them, and what its webhook received."""

    fault: str
    run: Path
    received: list[dict[str, Any]]


def sent(run: Path) -> list[str]:
    """The messages that a run sent when an alert began."""
    alerts: list[dict[str, Any]] = []
    for file in sorted(run.glob("rank_*/alerts.jsonl")):
        alerts += [json.loads(line) for line in file.read_text().splitlines()]
    begun = [alert for alert in alerts if alert.get("phase") == "begins"]
    return [alert["message"] for alert in begun if alert.get("incident", {"headline": True})["headline"]]


def headline(run: Path) -> str:
    """The sentence with which the report begins."""
    report: str = json.loads(trainmon("report", run, "--json").stdout)["summary"]
    return report


@pytest.mark.parametrize("fault", EXPECTED)
def test_the_first_sentence_of_a_planted_fault_is_right(tmp_path: Path, fault: str) -> None:
    run_alone("planted_faults.py", fault, tmp_path, 1)
    messages, expected = sent(tmp_path / fault), EXPECTED[fault]
    if expected.message is None:
        assert messages == []
    else:
        assert re.match(expected.message, messages[0]), messages
    assert re.match(expected.report, headline(tmp_path / fault)), headline(tmp_path / fault)


@pytest.fixture(scope="module", params=FIRST_MESSAGE_OF_A_JOB)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Of two ranks, with a fault on rank 1 alone."""
    place, webhook = tmp_path_factory.mktemp("job"), Webhook()
    address = f"http://127.0.0.1:{webhook.port}/alert"
    run_ranks_of_which_some_die("planted_faults.py", 2, request.param, place, 1, address)
    webhook.close()
    return Job(request.param, place / request.param, webhook.received)


def test_the_ranks_of_a_job_send_one_message_for_an_incident(job: Job) -> None:
    begins, ends = FIRST_MESSAGE_OF_A_JOB[job.fault]
    texts = [(message["phase"], message["ranks"], message["text"]) for message in job.received]
    assert [phase for phase, _, _ in texts] == ["begins", "ends"][: 1 if ends is None else 2], texts
    assert all(re.match(text, told) for text, (_, _, told) in zip([begins, ends or ""], texts, strict=False)), texts
    assert all(ranks == [0, 1] for _, ranks, _ in texts), texts


@pytest.mark.parametrize("job", ["nan_on_one_rank"], indirect=True)
def test_what_only_one_rank_computes_is_told_of_that_rank(job: Job) -> None:
    run = job.run
    of_rank = {rank: [message for message in sent(run) if f"on rank {rank}" in message] for rank in range(2)}
    assert re.match(r"NonFinite: loss is NaN at step 130 on rank 1; moved first: loss at step 130 ", of_rank[1][0]), (
        of_rank
    )
    # Rank 0 says that it came to it through the reduction.
    other = r"NonFinite: gradient norm is NaN at step 130 on rank 0; moved first: gradient of \S+ after reduction"
    assert re.match(other, of_rank[0][0]), of_rank
    assert re.match(
        r"One incident \(\d+ alerts on 2 ranks\): NonFinite: loss is NaN at step 130 on rank 1", headline(run)
    ), headline(run)


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    run_ranks_of_which_some_die("planted_faults.py", 2, "dropped_rank", tmp_path, 1)
    run = tmp_path / "dropped_rank"
    assert re.match(r"No alert. \d+ series", headline(run)), "rank 1 may still be at work"
    for file in run.glob("rank_*/*"):
        os.utime(file, (0, 0))
    told = headline(run)
    assert re.match(r"No alert. Rank 1 did not end in order, as other ranks did: its last step is 12[89]\.", told), told


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_clean_training_is_accused_of_nothing(tmp_path: Path, seed: int) -> None:
    run_alone("planted_faults.py", "clean", tmp_path, seed)
    assert sent(tmp_path / "clean") == []
    told = headline(tmp_path / "clean")
    assert re.fullmatch(r"No alert\. (No|\d+) series (may have )?left (its|their) usual range.*", told), told


def test_a_long_clean_training_is_accused_of_nothing(tmp_path: Path) -> None:
    # Three thousand take a minute and a half.
    steps = 3000 if IS_FULL else 500
    run_alone("planted_faults.py", "clean", tmp_path, 9, environment={"PLANTED_STEPS": str(steps)})
    assert sent(tmp_path / "clean") == []
    assert headline(tmp_path / "clean").startswith("No alert. ")
