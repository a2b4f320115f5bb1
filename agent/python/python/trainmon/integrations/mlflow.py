"""Writes steps to the MLflow run that is active in the process. Called by the exporter on its own thread."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Any

#: The maximum number of metrics in one request.
_MOST_METRICS = 1000

#: Characters that a metric's name must not contain; they become `_`.
_UNFIT = re.compile(r"[^\w\-. :/]")

#: The maximum length of a tag, on every kind of store.
_LONGEST_TAG = 5000


class Tracker:
    """The interface for the exporter. Imports only what the script has imported: without the package there is no
    run."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._run_id: str | None = None
        self._client: Any = None
        self._alerts = 0

    def log(self, step: int, unix_seconds: float, numbers: Sequence[tuple[str, float]]) -> tuple[int, int] | None:
        """Adds a step's numbers, in one request for each thousand. Returns None before a run exists; else `(0, 1)`: no
        step lost, one sent."""
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
        """Nothing is pending."""
        return 0, 0

    def alert(self, step: int, rule: str, title: str, text: str, _severity: str) -> bool:
        """Sets the rule's latest alert as a tag, and their number as a metric: MLflow has no alerts."""
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
        """The run's id. A run that has ended meanwhile still accepts earlier measurements."""
        mlflow = sys.modules.get("mlflow")
        if mlflow is None:
            return None
        run = mlflow.active_run() or _of_any_thread()
        if run is not None and run.info.run_id != self._run_id:
            self._run_id, self._client, self._alerts = run.info.run_id, mlflow.MlflowClient(), 0
        return self._run_id


def _of_any_thread() -> Any:
    """The active run of any thread: `mlflow.active_run` covers the calling thread only, and MLflow has no public
    function for others."""
    fluent = sys.modules.get("mlflow.tracking.fluent")
    find = getattr(fluent, "_get_latest_active_run", None)
    return None if find is None else find()
