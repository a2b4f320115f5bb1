"""The states of the random generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def random_states() -> Callable[[], None]:
    """Keeps the states of Python's, numpy's and torch's generators, of every device; returns the function that restores
    them. Waits for no device: torch keeps their generators' states on the host."""
    python, cpu = random.getstate(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    numpy = numpy_if_there()
    array = None if numpy is None else numpy.random.get_state()

    def put_back() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)
        if numpy is not None:
            numpy.random.set_state(array)

    return put_back


def numpy_if_there() -> Any:
    """The module numpy; None if it is not installed."""
    try:
        import numpy as np
    except ImportError:
        return None
    return np
