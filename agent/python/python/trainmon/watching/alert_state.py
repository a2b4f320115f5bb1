"""What alert rules remember, as a checkpoint keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainmon._trainmon import Monitor


def saved(monitor: Monitor) -> Any:
    """Numbers, texts, lists and dicts only."""
    return json.loads(monitor.alert_state())


def restore(monitor: Monitor, given: Any) -> None:
    """Goes on from what `saved` gave, within what `state_dict` made of it. The monitor warns of anything else."""
    state = given.get("alerts", dict(given) or None) if isinstance(given, Mapping) else given
    try:
        text = json.dumps(state)
    except (TypeError, ValueError, RecursionError):
        # Not its contents: they may lie on a device.
        text = json.dumps(f"an object of type {type(state).__name__}")
    monitor.load_alert_state(text)
