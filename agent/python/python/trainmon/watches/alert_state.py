"""The state of alert rules, as stored in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainmon._trainmon import Monitor


def saved(monitor: Monitor) -> Any:
    """The state: numbers, texts, lists and dicts only."""
    return json.loads(monitor.alert_state())


def restore(monitor: Monitor, given: Any) -> None:
    """Restores the state of `saved`, inside the result of `state_dict`. The monitor warns of anything else."""
    state = given.get("alerts", dict(given) or None) if isinstance(given, Mapping) else given
    try:
        text = json.dumps(state)
    except (TypeError, ValueError, RecursionError):
        # Without its contents: they may be on a device.
        text = json.dumps(f"an object of type {type(state).__name__}")
    monitor.load_alert_state(text)
