"""Pairs without a fault: nothing differs, or the order of a sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case
from faults.held_out.planted import more_threads, none, tf
from faults.plants.ranks import kernel as kernel_of

from .planted import (
    COLUMNS,
    ELMAN_SGD,
    FLAT,
    FLAT_ADAM,
    MIXER,
    STORY,
    SYNC_SGD,
    WAVE_ADAGRAD,
    from_double,
    linear_backwards,
    norm_summed_backwards,
    product_backwards,
    split_linear,
)

CASES: tuple[Case, ...] = (
    Case("again_mixer", MIXER, none("the same run twice")),
    Case("again_story", STORY, none("the same run twice")),
    Case("again_sync", SYNC_SGD, none("the same run of two ranks twice")),
    Case("threads_wave", WAVE_ADAGRAD, none("2 threads instead of 1", bits_differ=True), kernel=more_threads),
    Case("threads_flat", FLAT_ADAM, none("2 threads instead of 1", bits_differ=True), kernel=more_threads),
    Case(
        "order_norm_gradient",
        FLAT,
        none("a norm's weight's and bias's gradients are summed row by row", bits_differ=True),
        kernel=tf(F, "layer_norm", 0, norm_summed_backwards),
    ),
    Case(
        "order_linear",
        FLAT_ADAM,
        none("the head sums its features and its weight's gradient in two halves each", bits_differ=True),
        kernel=tf(F, "linear", 1, split_linear),
    ),
    Case(
        "order_scores",
        STORY,
        none("a matmul sums from the last term to the first", bits_differ=True),
        kernel=tf(torch, "matmul", 1, product_backwards),
    ),
    Case(
        "order_recurrent_linear",
        ELMAN_SGD,
        none("one of the recurrence's linears sums from the last term to the first", bits_differ=True),
        kernel=tf(F, "linear", 3, linear_backwards),
    ),
    Case(
        "rounded_once_mixer",
        MIXER,
        none("a mish is computed in double and rounded once", bits_differ=True),
        kernel=tf(F, "mish", 0, from_double),
    ),
    Case(
        "order_columns_on_rank1",
        COLUMNS,
        none("rank 1's linear sums from the last term to the first", bits_differ=True),
        kernel=kernel_of(1, F, "linear", 0, linear_backwards),
    ),
    Case(
        "order_sync",
        SYNC_SGD,
        none("on both ranks the middle linear sums from the last term to the first", bits_differ=True),
        kernel=tf(F, "linear", 1, linear_backwards),
    ),
)
