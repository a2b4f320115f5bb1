"""Trainings with faults on order, a real Prometheus and a real Alertmanager: every expression has an answer, and only
the expected alerts reach the webhook and are over in the end.
"""

from __future__ import annotations

import pytest

from support import dashboards, rendering, rules
from support.on_call import CLEAN_STEPS, EXPECTED, MPI_RUN, Scenario

#: What these trainings cannot show, and why. All have synthetic series in configs/alerting/tests.
WITHOUT_ANSWER = {
    "trainmon-run-overview / Gradient norm over hours / B": "looks six hours back",
    "trainmon-ranks / Rank that came last / A": "ranks under MPI have no store through which they are compared",
    "trainmon-ranks / How late it came / A": "as before",
}
PLANNED = {metric["name"] for metric in rules.CATALOG["metrics"] if metric["status"] == "planned"}
OF_MPI = "trainmon_collective_"
NO_COLLECTIVES = "no example data_parallel beside the program: built without MPI"


@pytest.mark.parametrize("asked", dashboards.expressions(), ids=lambda asked: asked.where)
def test_an_expression_of_a_dashboard_has_an_answer(scenario: Scenario, asked: dashboards.Asked) -> None:
    if OF_MPI in asked.expression and not scenario.has_collectives:
        pytest.skip(NO_COLLECTIVES)
    answer = scenario.answers[dashboards.filled(asked.expression)]
    assert bool(answer) != (asked.where in WITHOUT_ANSWER), answer


@pytest.mark.parametrize("where", rendering.all_panels())
def test_a_panel_shows_everything_that_a_reader_looks_for(scenario: Scenario, where: str) -> None:
    if not scenario.screens:
        pytest.skip(rendering.missing())
    if OF_MPI in str(rendering.all_panels()[where]["targets"]) and not scenario.has_collectives:
        pytest.skip(NO_COLLECTIVES)
    if f"{where} / A" in WITHOUT_ANSWER:
        pytest.skip(WITHOUT_ANSWER[f"{where} / A"])
    shown = {run: screen.shown[where] for run, screen in scenario.screens.items() if where in screen.shown}
    # Not every run has everything: one that does not stall has no step that took too long.
    of_runs = {run: one for run, one in shown.items() if not rendering.is_empty(one)}
    assert of_runs, f"empty in {', '.join(shown)}"
    assert {run: found for run, one in of_runs.items() if (found := rendering.faults(one))} == {}


@pytest.mark.parametrize("rule", rules.all_rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_what_a_rule_looks_at_has_an_answer(scenario: Scenario, rule: dict[str, str]) -> None:
    if OF_MPI in rule["expr"] and not scenario.has_collectives:
        pytest.skip(NO_COLLECTIVES)
    looked_at = rules.selectors(rule["expr"])
    assert looked_at
    for selector in looked_at:
        is_planned = any(metric in selector for metric in PLANNED)
        is_no_rule_yet = 'rule="Baseline"' in selector and "Baseline" not in rules.CATALOG["alert_rules"]
        assert bool(scenario.answers[selector]) != (is_planned or is_no_rule_yet), selector
    # What Prometheus itself made of the whole expression. Of an alert that is tested by its firing.
    if "record" in rule and not any(metric in rule["expr"] for metric in PLANNED):
        assert scenario.answers[rule["record"]], rule["expr"]


@pytest.mark.parametrize("run", EXPECTED)
def test_exactly_the_expected_alerts_fire(scenario: Scenario, run: str) -> None:
    fired = {alert for of, alert in scenario.servers.fired() if of == run}
    assert fired == EXPECTED[run]


def test_the_clean_run_was_long_enough(scenario: Scenario) -> None:
    assert scenario.clean_steps >= CLEAN_STEPS


def test_the_webhook_got_every_alert_and_its_end(scenario: Scenario) -> None:
    expected = {(run, alert) for run, alerts in EXPECTED.items() for alert in alerts}
    for status in ("firing", "resolved"):
        assert {(run, alert) for run, alert in scenario.servers.webhook.alerts(status) if run != MPI_RUN} == expected


def test_an_alert_tells_run_rank_values_and_where_to_read_on(scenario: Scenario) -> None:
    for message in scenario.servers.webhook.received:
        for alert in message["alerts"]:
            notes, name = alert["annotations"], alert["labels"]["alertname"]
            text = f"{notes['summary']} {notes['description']}"
            assert alert["labels"]["run"] in notes["summary"], text
            assert "<no value>" not in text, text
            assert "<error" not in text, text
            assert any(character.isdigit() for character in text), text
            assert notes["runbook_url"].endswith(f"#{name.lower()}")
            # A page wakes somebody, a ticket does not.
            assert message["path"] == {"page": "/pages", "ticket": "/tickets"}[alert["labels"]["severity"]]
    firing = [
        alert
        for message in scenario.servers.webhook.received
        for alert in message["alerts"]
        if alert["status"] == "firing"
    ]
    descriptions = {alert["labels"]["alertname"]: alert["annotations"]["description"] for alert in firing}
    for name in ("GradNormSpike", "TrainingNonFinite", "DeadLayer", "TrainingStalled"):
        assert "rank 0" in descriptions[name] or "rank 1" in descriptions[name], descriptions[name]
        assert "http://127.0.0.1:" in descriptions[name], descriptions[name]
    assert "rank 1" in descriptions["RankMetricsMissing"]
