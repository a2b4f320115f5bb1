"""The alert rules: each fires and does not fire as it should, has a runbook entry, and asks for what is served."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from support import rules

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on PATH (Debian: prometheus)")


def promtool(*words: object) -> str:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expectations() -> list[dict[str, Any]]:
    """Of all promtool tests: one for each time that something is asked."""
    files = sorted((rules.ALERTING / "tests").glob("*.test.yml"))
    tests = [test for file in files for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]]
    return [asked for test in tests for asked in test["promql_expr_test"]]


def test_promtool_accepts_every_rule() -> None:
    for file in sorted(rules.ALERTING.glob("*.rules.yml")):
        assert f"{len(rules.rules(file.name))} rules found" in promtool("check", "rules", file)


def test_the_unit_tests_of_the_rules_pass() -> None:
    said = promtool("test", "rules", *sorted((rules.ALERTING / "tests").glob("*.test.yml")))
    assert "FAILED" not in said


@pytest.mark.parametrize("alert", rules.alerts())
def test_every_alert_is_proven_to_fire_and_not_to_fire(alert: str) -> None:
    firing = [
        asked
        for asked in expectations()
        if any(f'alertname="{alert}"' in sample["labels"] for sample in asked["exp_samples"])
    ]
    assert firing, "no promtool test in which it fires"
    # An expectation is the whole set of what fires: where it is not named it must not.
    silent = [
        asked for asked in expectations() if asked["expr"] == 'ALERTS{alertstate="firing"}' and asked not in firing
    ]
    of_its_own = [
        asked for asked in expectations() if f'alertname="{alert}"' in asked["expr"] and not asked["exp_samples"]
    ]
    assert silent or of_its_own, "no promtool test in which it does not fire"


@pytest.mark.parametrize("alert", rules.alerts())
def test_every_alert_tells_what_is_wrong_how_bad_and_where_to_read_on(alert: str) -> None:
    rule = rules.alerts()[alert]
    assert rule["labels"]["severity"] in {"page", "ticket"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert "$labels.run" in notes["summary"]
    assert "$labels.run" in notes["description"]
    assert "$value" in notes["summary"] + notes["description"]
    assert notes["runbook_url"].endswith(f"docs/runbook.md#{alert.lower()}")


def test_the_runbook_has_an_entry_for_every_alert_and_no_other() -> None:
    text = rules.RUNBOOK.read_text(encoding="utf-8")
    entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    found = {entry.split("\n", 1)[0]: entry for entry in entries}
    assert set(found) == set(rules.alerts())
    for name, entry in found.items():
        for word in ("**Means:**", "**Check:**", "**Do:**"):
            assert word in entry, f"{name}: no {word}"


@pytest.mark.parametrize("rule", rules.all_rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_rule_asks_for_what_is_served(rule: dict[str, Any]) -> None:
    is_planned = rule in rules.rules(rules.PLANNED)
    assert rules.metrics_in(rule["expr"])
    assert rules.unknown_metrics(rule["expr"], planned=is_planned) == set()
    assert not is_planned or rules.unknown_metrics(rule["expr"]), "it is served by now: move it to the others"


def test_every_rule_of_the_training_process_reaches_an_alert() -> None:
    expressions = " ".join(rule["expr"] for rule in rules.alerts().values())
    named = {name for group in re.findall(r'rule=~?"([^"]+)"', expressions) for name in group.split("|")}
    assert named >= set(rules.CATALOG["alert_rules"])


def test_a_scaled_rule_differs_in_its_durations_only() -> None:
    assert (
        rules.scaled("rate(a:b:avg10m[10m] offset 6h) > 10 * x", 30)
        == "rate(a:b:avg10m[20000ms] offset 720000ms) > 10 * x"
    )
