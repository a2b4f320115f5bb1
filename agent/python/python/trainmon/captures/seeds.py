"""`seed_all`: makes two runs of a program comparable."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from trainmon.captures.random_states import numpy_if_there, random_states

_LARGEST_SEED = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
    """Seeds Python's, numpy's and torch's generators, of all devices.

    `mode`: deterministic algorithms only (`torch.use_deterministic_algorithms`). `rm_dropout`: disables dropout, that
    of attention too: in the functions of `torch.nn.functional` and the modules that call them, not between the layers
    of `nn.LSTM`, `nn.GRU` and `nn.RNN`. `is_enhanced`: every call of a random function returns the result of the first:
    the states of all generators are restored around it. Raises `TypeError` and `ValueError` for other arguments.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"seed_all: seed: expected an integer, found `{type(seed).__name__}`")
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"seed_all: seed: expected 0 to {_LARGEST_SEED}, found {seed}")
    for name, flag in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        if not isinstance(flag, bool):
            raise TypeError(f"seed_all: {name}: expected a bool, found `{type(flag).__name__}`")
    random.seed(seed)
    # For child processes: this one's is fixed already.
    os.environ["PYTHONHASHSEED"] = str(seed)
    numpy = numpy_if_there()
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if rm_dropout:
        remove_dropout()
    # Calls that repeat the results of an earlier seed would do so with any other seed.
    if is_enhanced or _Kept.put_back is not None:
        repeat_random_calls()


#: Functions that draw, by their module or class.
_DRAWING = {
    "random": (
        *("random", "randint", "uniform", "choice", "choices", "sample", "shuffle"),
        *("gauss", "normalvariate", "randrange", "betavariate"),
    ),
    "numpy.random": (
        *("rand", "randn", "randint", "random", "uniform", "normal", "choice"),
        *("permutation", "shuffle", "beta", "binomial", "gamma"),
    ),
    "torch": (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("bernoulli", "multinomial", "normal", "poisson"),
    ),
    "torch.Tensor": (
        *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_"),
        *("normal_", "random_", "uniform_", "multinomial"),
    ),
}


def repeat_random_calls() -> None:
    """Makes every call of a random function return the result of the first: restores the generators' states before it
    and after it."""
    _Kept.put_back = random_states()
    for place, names in _DRAWING.items():
        owner = torch.Tensor if place == "torch.Tensor" else sys.modules.get(place)
        for name in names:
            original = getattr(owner, name, None)
            if original is not None and not hasattr(original, "_repeats"):
                setattr(owner, name, _repeating(original))


class _Kept:
    """The generators' states at the begin of calls."""

    #: Restores them; None: calls are unchanged.
    put_back: ClassVar[Callable[[], None] | None] = None


def _repeating(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        put_back = _Kept.put_back
        if put_back is None:
            return original(*args, **kwargs)
        put_back()
        try:
            return original(*args, **kwargs)
        finally:
            put_back()

    draw._repeats = True  # type: ignore[attr-defined]
    return draw


def remove_dropout() -> None:
    """Disables dropout: an invalid probability is refused as before, and the kernel still runs."""
    functional = torch.nn.functional
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    for name, keeping in (*((name, _keeping) for name in names), ("scaled_dot_product_attention", _attending)):
        original = getattr(functional, name)
        if not hasattr(original, "_keeps_everything"):
            setattr(functional, name, keeping(original))


def _attending(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **kwargs: Any
    ) -> Any:
        _check_probability(dropout_p)
        return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

    attention._keeps_everything = True  # type: ignore[attr-defined]
    return attention


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _keeping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        _check_probability(p)
        return original(input, 0.0, training, inplace)

    dropout._keeps_everything = True  # type: ignore[attr-defined]
    return dropout
