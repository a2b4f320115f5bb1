"""Steps in the MLflow run that is active in the process. Called by the exporter on its own thread."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Any

#: What one request may hold.
_MOST_METRICS = 1000

#: What a metric's name may be made of; the rest becomes `_`.
_UNFIT = re.compile(r"[^\w\-. :/]")

#: What a tag may hold, on every kind of store.
_LONGEST_TAG = 5000


class Tracker:
    """What the exporter calls. Imports nothing that the script has not: without the package there is no run."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._run_id: str | None = None
        self._client: Any = None
        self._alerts = 0

    def log(self, step: int, unix_seconds: float, numbers: Sequence[tuple[str, float]]) -> tuple[int, int] | None:
        """Adds a step's numbers, in one request for each thousand. None where there was no run yet; else that no step
        is lost and one is sent."""
        run_id = self._active()
        if run_id is None:
            return None
        metric = sys.modules["mlflow"].entities.Metric
        milliseconds = int(unix_seconds * 1000)
        metrics = [metric(self._key(name), value, milliseconds, step) for name, value in numbers]
        for start in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(run_id, metrics=metrics[start : start + _MOST_METRICS], synchronous=True)
        return 0, 1

    def finish(self) -> tuple[int, int]:
        """Nothing waits here."""
        return 0, 0

    def alert(self, step: int, rule: str, title: str, text: str, _severity: str) -> bool:
        """The rule's latest alert as a tag, and how many there were as a metric: MLflow has nothing for alerts."""
        run_id = self._active()
        if run_id is None:
            return False
        self._alerts += 1
        self._client.set_tag(run_id, f"trainmon.alert.{rule}", f"{title}: {text}"[:_LONGEST_TAG])
        self._client.log_metric(
            run_id, f"{self._prefix}alerts", self._alerts, int(time.time() * 1000), step, synchronous=True
        )
        return True

    def _key(self, name: str) -> str:
        return _UNFIT.sub("_", f"{self._prefix}{name}")

    def _active(self) -> str | None:
        """The run's id. One that has ended meanwhile still takes what was measured before."""
        mlflow = sys.modules.get("mlflow")
        if mlflow is None:
            return None
        run = mlflow.active_run() or _of_any_thread()
        if run is not None and run.info.run_id != self._run_id:
            self._run_id, self._client, self._alerts = run.info.run_id, mlflow.MlflowClient(), 0
        return self._run_id


def _of_any_thread() -> Any:
    """`mlflow.active_run` knows those of the calling thread only, and MLflow has no public word for the others'."""
    fluent = sys.modules.get("mlflow.tracking.fluent")
    find = getattr(fluent, "_get_latest_active_run", None)
    return None if find is None else find()
