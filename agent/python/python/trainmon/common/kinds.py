"""The numbers of the kinds of record, by name."""

from __future__ import annotations

from typing import Final

from trainmon._trainmon import KINDS

_BY_NAME: Final = {name: number for number, name in enumerate(KINDS)}


class Kind:
    """One number per signal; the names are those of the output files."""

    ACTV: Final = _BY_NAME["actv"]
    ACTV_GRAD: Final = _BY_NAME["actv_grad"]
    GRAD_UNREDUCED: Final = _BY_NAME["grad_unreduced"]
    GRAD_REDUCED: Final = _BY_NAME["grad_reduced"]
    PARAM_ORIGIN: Final = _BY_NAME["param_origin"]
    PARAM_UPDATED: Final = _BY_NAME["param_updated"]
    UPDATE: Final = _BY_NAME["update"]
    UPDATE_RATIO: Final = _BY_NAME["update_ratio"]
    MG_DIRECTION: Final = _BY_NAME["mg_direction"]
    EXP_AVG: Final = _BY_NAME["exp_avg"]
    ADHOC: Final = _BY_NAME["adhoc"]
    SCALAR: Final = _BY_NAME["scalar"]


#: Optimizer state by the name torch's optimizers give it.
MOMENTS: Final = {
    name: _BY_NAME[name]
    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum")
}


def kind_of(name: str) -> int | None:
    """The number of a kind, or None if this build does not know it."""
    return _BY_NAME.get(name)
