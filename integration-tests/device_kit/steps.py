"""What watching adds to a step of a GPT of a billion parameters, beside msprobe: `overhead.py`, on a device."""

from __future__ import annotations

import time
from typing import Any

from device_kit.beside import run_script, why_no_msprobe
from device_kit.rates import timed
from device_kit.report import Report
from device_kit.setting import Setting

#: The configurations, the one with a goal first: what there is no time for at the end is not that one.
CONFIGS = ("wg+mv+param", "xy", "wg")

#: What a step may take longer with gradients, moments and parameters measured, as a part of it.
GOAL = ("wg+mv+param", 0.005)

#: How long all races may take together; how long one may have rounds, and what starting three processes takes besides.
_SECONDS, _ROUNDS_S, _START_S = 100.0, 12.0, 25.0

_ADDS, _BESIDE, _RATIO = "{}: trainmon adds to a step", "{}: msprobe adds to a step", "{}: of what msprobe adds"
_ONCE = "{}: reading once what is measured takes"
_LOSSES, _ROWS = "{}: losses are the same", "{}: every tensor was measured"
_GOAL = f"{GOAL[0]}: trainmon adds less than {100 * GOAL[1]:g} % of a step"

TITLES = (
    *(title.format(config) for config in CONFIGS for title in (_ADDS, _BESIDE, _RATIO, _LOSSES, _ROWS)),
    _ONCE.format(GOAL[0]),
    _GOAL,
)


def run(setting: Setting, report: Report) -> None:
    """A race for each configuration, as long as there is time."""
    started = time.monotonic()
    why = why_no_msprobe()
    for number, config in enumerate(CONFIGS):
        left = _SECONDS - (time.monotonic() - started)
        if setting.is_cuda and left < _START_S + _ROUNDS_S:
            _skip(report, config, "no time left")
            continue
        if setting.is_dry and number > 0:
            _skip(report, config, "the dry form races one configuration")
            continue
        with report.guard(_ADDS.format(config)):
            figures = _race(setting, config, is_alone=why is not None, seconds=left if setting.is_cuda else 120.0)
            _tell(setting, report, figures, why)


def _skip(report: Report, config: str, why: str) -> None:
    report.skipped([title.format(config) for title in (_ADDS, _BESIDE, _RATIO, _LOSSES, _ROWS)], why)
    if config == GOAL[0]:
        report.skipped([_ONCE.format(config), _GOAL], why)


def _race(setting: Setting, config: str, *, is_alone: bool, seconds: float) -> dict[str, Any]:
    contenders = "none,trainmon" if is_alone else "none,trainmon,msprobe"
    arguments = ["--only", config, "--contenders", contenders, "--starts", "1", "--device", setting.device]
    if setting.is_cuda:
        arguments += ["--size", "1b", "--dtype", "bfloat16", "--rounds", "40", "--seconds", str(_ROUNDS_S)]
    else:
        arguments += ["--size", "small", "--rounds", "2", "--warm", "1"]
    figures: list[dict[str, Any]] = run_script("overhead.py", arguments, setting.scratch / config, seconds)
    return figures[0]


def _tell(setting: Setting, report: Report, figures: dict[str, Any], why_alone: str | None) -> None:
    config, step_ms = figures["config"], figures["wall_step_ms"]
    said = f"{figures['parameters']} parameters, {figures['batch']} sequences, {figures['rounds']} pairs of steps"
    ours, low, high = figures["wall_trainmon_ms"]
    spread = (
        f"{100 * ours / step_ms:+.2f} % of {step_ms:.1f} ms; 10th to 90th percentile {low:.2f} to {high:.2f} ms; {said}"
    )
    report.measured(_ADDS.format(config), round(ours, 3), "ms", spread)
    if "wall_msprobe_ms" in figures:
        theirs, low, high = figures["wall_msprobe_ms"]
        spread = f"{100 * theirs / step_ms:+.2f} %; 10th to 90th percentile {low:.2f} to {high:.2f} ms"
        report.measured(_BESIDE.format(config), round(theirs, 3), "ms", spread)
        report.measured(_RATIO.format(config), round(figures["wall_ratio"], 4), "times")
    else:
        report.skipped([_BESIDE.format(config), _RATIO.format(config)], str(why_alone))
    same, losses = figures["same"]["trainmon"], figures["losses"]
    report.check(_LOSSES.format(config), same == losses, same, f"of {losses}")
    lost = sum(last["not_measured"] for last in figures["last"]["trainmon"])
    report.check(_ROWS.format(config), lost == 0, lost, "tensors not measured")
    if config == GOAL[0]:
        once_ms = 1e3 * figures["last"]["trainmon"][0]["looked_at_bytes"] / _rate(setting)
        said = f"{100 * once_ms / step_ms:.2f} % of the step; nobody adds less who looks at all of it"
        report.measured(_ONCE.format(config), round(once_ms, 3), "ms", said)
        share = ours / step_ms
        if setting.is_cuda:
            report.check(_GOAL, share < GOAL[1], round(100 * share, 3), "% of a step")
        else:
            report.measured(_GOAL, round(100 * share, 3), "% of a step", "a dry run claims nothing of time")


def _rate(setting: Setting) -> float:
    """Bytes per second that torch's sum reads."""
    import torch

    buffer = torch.ones(setting.size(1 << 28, 1 << 16), device=setting.device)
    return float(buffer.nbytes / timed(setting, buffer.sum, setting.size(20, 3)).device)
