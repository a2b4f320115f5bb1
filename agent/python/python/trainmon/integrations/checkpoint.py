"""What the alert rules remember, as a file in a checkpoint's directory: for trainers that leave no other place."""

from __future__ import annotations

import json
from pathlib import Path

from trainmon.watching.watch import Watch


def save_alerts(watch: Watch, checkpoint: Path) -> None:
    """Writes this rank's state. A checkpoint that is not on this machine is left alone, and that is said."""
    file = _file(watch, checkpoint)
    unfinished = file.with_suffix(".tmp")
    try:
        unfinished.write_text(json.dumps(watch.state_dict()))
        unfinished.replace(file)
    except OSError as error:
        _say(watch, f"`{file}` is not written: {error}")


def load_alerts(watch: Watch, checkpoint: Path) -> None:
    """Goes on from this rank's state, if the checkpoint has one."""
    file = _file(watch, checkpoint)
    try:
        text = file.read_text()
    except FileNotFoundError:
        return
    except OSError as error:
        _say(watch, f"`{file}` cannot be read: {error}")
        return
    try:
        watch.load_state_dict(json.loads(text))
    except ValueError as error:
        _say(watch, f"`{file}` is no alert state: {error}")


def _file(watch: Watch, checkpoint: Path) -> Path:
    return checkpoint / f"trainmon_alerts_rank{watch.monitor.rank}.json"


def _say(watch: Watch, what: str) -> None:
    watch.monitor.say("warning", what, "without it the rules of a resumed run learn anew what is usual")
