"""What trainings of tests are watched with."""

from __future__ import annotations

from typing import Any

#: Statistics that every kind of tensor has.
OPS = ["min", "max", "mean", "norm"]
#: Of the parameters: gradients, moments, values.
PARAMETERS: dict[str, Any] = dict.fromkeys(("wg_distribution", "mv_distribution", "param_distribution"), True)
#: And what modules get and give, and how parameters move.
EVERYTHING: dict[str, Any] = PARAMETERS | dict.fromkeys(("xy_distribution", "all_xy", "mg_direction", "update"), True)
