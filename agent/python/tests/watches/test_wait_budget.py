"""Ctrl-C while the end of a run waits: what is there is delivered, and the user has the prompt back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from support import forks, runs
from support.ranks import variables_of_a_rank
from trainmon.watches.wait_budget import WaitBudget

SCRIPT = Path(__file__).parents[1] / "scripts" / "close_slowly.py"


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("way", ["close", "exit", "lane"])
def test_ctrl_c_shortens_the_end_and_nothing_on_disk_is_lost(tmp_path: Path, way: str, presses: int) -> None:
    process = forks.Started([str(SCRIPT), str(tmp_path), way], variables_of_a_rank(), tmp_path)
    assert process.stdout.readline() == "closing\n"
    # It waits for its collector.
    time.sleep(0.5)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    # The deadlines are a minute.
    status, _, said = process.wait(30)
    assert "KeyboardInterrupt" in said, said
    # At its end the interpreter says what was raised, and exits as it would have.
    assert status == (0 if way == "exit" else -signal.SIGINT), said
    assert "records were still queued when the shutdown deadline passed" in said, said
    assert len(runs.rows(runs.run_directory(tmp_path, 0), "grad_reduced")) == 6


def test_what_is_left_after_a_ctrl_c_is_a_second_for_all_and_then_nothing() -> None:
    budget, ran = WaitBudget(60.0), list[float]()

    def interrupted() -> None:
        raise KeyboardInterrupt

    budget.run(lambda: ran.append(budget.left))
    budget.end(ran.append)
    assert ran == [60.0]
    budget.run(interrupted)
    assert 0 < budget.left <= 1.0
    budget.run(interrupted)
    assert budget.left == 0.0
    with pytest.raises(KeyboardInterrupt):
        budget.end(ran.append)
    assert ran == [60.0, 0.0]
