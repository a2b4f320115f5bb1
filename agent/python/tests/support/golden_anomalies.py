"""Holds our `anomaly.json` against msprobe's: the same findings, apart from the repairs that
`docs/msprobe-compatibility.md` lists."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.golden import Case, Table
from support.golden_compare import Tally
from support.golden_truth import Truth

#: Tag, step, statistic, rule.
Key = tuple[str, int, str, str]

#: The share of the running average that a step leaves as it was.
_KEPT = 0.99
_MESSAGE = re.compile(
    r"Rule (?P<rule>\w+) reports anomaly signal in \('(?P<tag>.+)', '(?P<op>\w+)'\) at step (?P<step>\d+), "
    r"current value (?P<value>\S+), history mean (?P<history>\S+)\."
)


@dataclass
class Finding:
    """One finding taken apart."""

    entry: dict[str, Any]
    value: float
    history: float


def asked_for(case: Case) -> bool:
    """Whether msprobe was asked for findings."""
    return "alert" in case.json["config"]


def findings(output: Path) -> dict[Key, Finding]:
    """The findings of a run's first rank."""
    found: dict[Key, Finding] = {}
    for name, entry in json.loads((output / "anomaly_detected" / "rank0" / "anomaly.json").read_text()).items():
        told = _MESSAGE.fullmatch(entry.pop("message"))
        assert told is not None, entry
        tag, step = entry["tag_name"], entry["step"]
        assert told["tag"] == tag and int(told["step"]) == step
        assert name.startswith(f"{tag}_step_{step}_call_{entry['call_id']}"), name
        key = (tag, step, told["op"], told["rule"])
        assert key not in found, f"{name} twice"
        found[key] = Finding(entry, float(told["value"]), float(told["history"]))
    return found


def compare(
    case: Case,
    answer: dict[str, Table],
    theirs: dict[Key, Finding],
    ours: dict[Key, Finding],
    truth: Truth,
    tally: Tally,
) -> None:
    """Adds what differs to the tally. `answer`: msprobe's tables."""
    for key, finding in theirs.items():
        if key in ours:
            _compare_finding(case, key, finding, ours[key], truth, tally)
        elif math.isnan(finding.value) and _is_row_without_tensor(answer, key):
            tally.deviations["missing-is-no-anomaly"] += 1
        else:
            tally.faults.append(f"finding {key} is missing")
    for key in ours.keys() - theirs.keys():
        reason = _reason_for_more(case, key, theirs)
        if reason is None:
            tally.faults.append(f"msprobe has no finding {key}")
        else:
            tally.deviations[reason] += 1


def _is_row_without_tensor(answer: dict[str, Table], key: Key) -> bool:
    """Whether msprobe's own row of what a finding is about has no tensor: every statistic of it is NaN then."""
    name, micro, kind = _parts(key[0])
    rows = [row for file, (_, rows) in answer.items() if file.rsplit("_", 1)[0] == kind for row in rows]
    return any(
        row["dtype"] == "nan" and row["name"] == name and row["step"] == str(key[1]) and row.get("micro_step") == micro
        for row in rows
    )


def _parts(tag: str) -> tuple[str, str | None, str]:
    """Name, micro-batch and kind of `<vpp>:<name>[:<micro-batch>]/rank<R>/<kind>`."""
    name, _, rest = tag.partition(":")[2].partition("/")
    head, colon, micro = name.rpartition(":")
    kind = rest.partition("/")[2]
    return (head, micro, kind) if colon and micro.isdecimal() else (name, None, kind)


def _excuse_entry(case: Case, key: Key, theirs: dict[str, Any], ours: dict[str, Any], tally: Tally) -> None:
    """Puts msprobe's micro-batch and call in the place of ours where their difference has its listed cause."""
    _, named, kind = _parts(key[0])
    micro_batches = case.json.get("grad_acc", 1)
    micro = micro_batches - 1 if named is None else int(named)
    if theirs["micro_step"] == 0 and micro > 0 and ours["micro_step"] == micro:
        ours["micro_step"] = 0
        tally.deviations["real-micro-step"] += 1
    earlier = len(tally.elements) * (micro_batches - 1)
    is_gradient = kind in ("acc_grad", "post_grad") and named is None and "call_id" in ours
    if is_gradient and earlier and ours["call_id"] + earlier == theirs["call_id"]:
        ours["call_id"] = theirs["call_id"]
        tally.deviations["call-per-firing"] += 1


def _compare_finding(case: Case, key: Key, theirs: Finding, ours: Finding, truth: Truth, tally: Tally) -> None:
    tally.cells += 1
    entries = [dict(finding.entry) for finding in (theirs, ours)]
    if key[0].endswith(("/actv_grad", "/acc_grad")):
        # Calls are numbered in the order of the rows, which is another one in the backward pass.
        numbers = [entry.pop("call_id") for entry in entries]
        tally.deviations["backward-row-order"] += numbers[0] != numbers[1]
    _excuse_entry(case, key, *entries, tally)
    if entries[0] != entries[1]:
        tally.faults.append(f"{key}: {entries[1]}, msprobe has {entries[0]}")
        return
    if not _agree(ours.value, theirs.value) and not _is_whole(key, ours, truth):
        tally.faults.append(f"{key}: value {ours.value}, msprobe has {theirs.value}")
    elif _agree(ours.history, theirs.history):
        tally.identical += 1
    elif math.isnan(theirs.history) and math.isfinite(ours.history):
        tally.deviations["history-stays-finite"] += 1
    elif _is_history_of_whole(key, ours, truth):
        tally.deviations["whole-gradient"] += 1
    else:
        tally.faults.append(f"{key}: history {ours.history}, msprobe has {theirs.history}")


def _agree(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-7)


def _is_whole(key: Key, ours: Finding, truth: Truth) -> bool:
    """Whether torch itself gave this value of a gradient (`whole-gradient`)."""
    tag, step, op, _ = key
    name, micro, kind = _parts(tag)
    if kind != "actv_grad" or micro is None:
        return False
    found = truth.shown.get((kind, step, int(micro), name), {})
    return op in found and _agree(ours.value, found[op])


def _is_history_of_whole(key: Key, ours: Finding, truth: Truth) -> bool:
    """Whether the average is that of what torch itself gave in the steps before."""
    tag, step, op, _ = key
    name, micro, kind = _parts(tag)
    if kind != "actv_grad" or micro is None:
        return False
    average = math.nan
    for earlier in range(step):
        value = truth.shown.get((kind, earlier, int(micro), name), {}).get(op, math.nan)
        if math.isfinite(value):
            average = value if math.isnan(average) else _KEPT * average + (1 - _KEPT) * value
    return _agree(ours.history, average)


def _reason_for_more(case: Case, key: Key, theirs: dict[Key, Finding]) -> str | None:
    """Why we have a finding that msprobe lacks: it has another under the same key of its own, which took this one's
    place or kept its rule from being asked."""
    tag, step, op, rule = key
    ops = case.json["config"]["ops"]
    rules = [one["rule_name"] for one in case.json["config"]["alert"]["rules"]]
    for their_tag, their_step, their_op, their_rule in theirs:
        if (their_tag, their_step) == (tag, step):
            if their_op == op:
                return "no-rule-hides-another" if rules.index(their_rule) < rules.index(rule) else None
            return "finding-per-statistic" if ops.index(op) < ops.index(their_op) else None
    return None
