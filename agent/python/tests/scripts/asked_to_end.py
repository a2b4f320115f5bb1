"""A signal's handler ends the program while a watched step is made, many times over:
`asked_to_end.py OUTPUT TIMES watched|bare`.

Python runs a handler between any two of its instructions, and not all code bears what is raised there, with and without
a monitor: where torch's `optimizer.step` is about to switch gradients on again they stay off, and from where a weak
reference's end is told nothing is. So the handler raises in the code of this program and in ours alone.
"""

import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed

import trainmon
from trainmon.collectives import callers

#: At most two steps; then, where the place is not the one, a few calls.
LONGEST_DELAY_S, LONGEST_NEXT_S = 0.006, 0.0003
#: Bounds a broken test: a place that is waited for comes after some tens of signals.
MOST_SIGNALS = 100_000

#: Whose code runs. Native code asks for the line of an operation, and what answers is ours, too.
OWNERS = {
    callers.__file__: "asked by native code",
    f"{Path(trainmon.__file__).parent}/": "ours",
    __file__: "the program's",
}


class Alarm:
    """Ends the program once it is at a place."""

    def __init__(self) -> None:
        self._numbers = random.Random(7)
        self._place = ""
        self.has_raised = self.is_given_up = False
        self.raised: Counter[str] = Counter()
        signal.signal(signal.SIGALRM, self._asked)

    def set(self, place: str) -> None:
        self._place, self._signals = place, 0
        self.has_raised = False
        self._ring_within(LONGEST_DELAY_S)

    def _ring_within(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._numbers.uniform(1e-5, seconds))

    def _asked(self, _number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > MOST_SIGNALS:
            self.is_given_up = True
        elif self._interrupted(frame) != self._place:
            self._ring_within(LONGEST_NEXT_S)
        else:
            self.has_raised = True
            self.raised[self._place] += 1
            raise SystemExit(7)

    def _interrupted(self, frame: FrameType | None) -> str:
        """Whose code the signal came in. What this handler raises is raised in what another signal interrupted."""
        file, outer = "" if frame is None else frame.f_code.co_filename, frame
        while outer is not None:
            if outer.f_code is Alarm._asked.__code__:
                return "another's"
            outer = outer.f_back
        return next((owner for place, owner in OWNERS.items() if file.startswith(place)), "another's")


def is_told(alarm: Alarm, place: str, step: Callable[[], None]) -> bool:
    """Whether the program is told of the alarm, while it makes steps."""
    try:
        alarm.set(place)
        # Who gets here after it was raised has not been told.
        while not (alarm.has_raised or alarm.is_given_up):
            step()
    except SystemExit as end:
        return end.code == 7
    return False


def main() -> None:
    output, times, is_watched = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "watched"
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = {
        "ops": ["norm", "mean"],
        "wg_distribution": True,
        "mv_distribution": True,
        "update": True,
        "cc_distribution": {"enable": True, "cc_pre_hook": True, "cc_codeline": ["no such line"]},
    }
    watch: Any = contextlib.nullcontext()
    if is_watched:
        watch = trainmon.watch(model, optimizer, config=config, output_dir=str(output))
    places = ["the program's", "ours", "asked by native code"] if is_watched else ["the program's"]
    alarm = Alarm()

    def step() -> None:
        for _ in range(20):
            distributed.all_reduce(torch.ones(64))
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with watch:
        ended = sum(is_told(alarm, places[number % len(places)], step) for number in range(times))
    print(f"ended {ended} of {times}: {dict(alarm.raised)}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


main()
