"""What trainings that wait for an alert are watched with."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def config_of(rule: dict[str, Any], output: Path, **more: Any) -> dict[str, Any]:
    """Gradients, one rule, and no step left out: every one of them counts."""
    lossless = {"queue_steps": 4096, "step_count_per_record": 100000}
    own = {"wg_distribution": True, "ops": ["norm"], "output_dir": str(output)}
    return {**own, **lossless, "alert": {"rules": [rule], "dump": True}, **more}
