"""Faults of the forward pass, and of what is fed to it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case
from faults.held_out.planted import EITHER, F1, setting_of, tf, truth
from faults.kernels import aten, in_type, rounded_inputs

from .planted import (
    ELMAN,
    MIXER,
    STORY,
    WAVE,
    LabelsExchanged,
    SamplesExchanged,
    biased_norm,
    bit_flipped,
    earlier_state,
    exchanged,
    hard_tanh,
    method,
    result,
    rolled_pool,
    row_dropped,
    second_head_looks_ahead,
    states_exchanged,
    weight,
)


def _forward(verdict: str, operator: str, modules: str, what: str, **other: Any) -> Any:
    return truth(other.pop("phase", F1), verdict, operator, modules, what, **other)


CASES: tuple[Case, ...] = (
    Case(
        "mixer_time_backwards",
        MIXER,
        _forward(
            EITHER,
            "Functional.linear.1.forward",
            "Module.across.Linear.forward.0",
            "the linear over time gets its tokens in the other order, unseen",
        ),
        method("turned", lambda hidden: aten.flip(hidden, [2])),
    ),
    Case(
        "mixer_weight_rows_exchanged",
        MIXER,
        _forward(
            "parameter",
            "Functional.linear.2.forward",
            "Module.up.Linear.forward.0",
            "two rows of a weight are exchanged: the same statistics",
        ),
        weight("up.weight", lambda value: exchanged(value, 0, 2, 5)),
    ),
    Case(
        "mixer_bias_turned",
        MIXER,
        _forward(
            "parameter",
            "Functional.linear.3.forward",
            "Module.down.Linear.forward.0",
            "a bias is in the other order: the same statistics",
        ),
        weight("down.bias", lambda value: aten.flip(value, [0])),
    ),
    Case(
        "mixer_mish_in_bf16",
        MIXER,
        _forward("operator", "Functional.mish.0.forward", "", "one mish is computed in bf16"),
        kernel=tf(F, "mish", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "mixer_norm_eps",
        MIXER,
        _forward(
            "operator", "Functional.layer_norm.1.forward", "Module.norm2.LayerNorm.forward.0", "eps is 1e-4, not 1e-5"
        ),
        setting_of("norm2", "eps", 1e-4),
    ),
    Case(
        "mixer_elements_exchanged",
        MIXER,
        _forward(
            "operator", "Torch.sigmoid.0.forward", "", "two elements of a result are exchanged: the same statistics"
        ),
        kernel=tf(torch, "sigmoid", 0, result(lambda value: exchanged(value, 0, 1, 4))),
    ),
    Case(
        "mixer_bit_flipped",
        MIXER,
        _forward(
            "operator",
            "Functional.linear.2.forward",
            "Module.up.Linear.forward.0",
            "one bit of one element's mantissa is another: 6e-5 of that element",
        ),
        kernel=tf(F, "linear", 2, result(bit_flipped)),
    ),
    Case(
        "mixer_sample_dropped",
        MIXER,
        _forward(
            "operator",
            "Functional.linear.0.forward",
            "Module.enter.Linear.forward.0",
            "one sample's features become zeros",
        ),
        kernel=tf(F, "linear", 0, result(row_dropped)),
    ),
    Case(
        "mixer_labels_exchanged",
        MIXER,
        _forward(EITHER, "Functional.cross_entropy.0.forward", "", "the labels come in the other order", phase="input"),
        trainer=LabelsExchanged,
    ),
    Case(
        "wave_channels_exchanged",
        WAVE,
        _forward(
            "parameter",
            "Functional.conv1d.0.forward",
            "Module.stem.Conv1d.forward.0",
            "two input channels of the kernels are exchanged: the same statistics",
        ),
        weight("stem.weight", lambda value: aten.flip(value, [1])),
    ),
    Case(
        "wave_kernels_turned",
        WAVE,
        _forward(
            "parameter",
            "Functional.conv_transpose1d.0.forward",
            "Module.again.ConvTranspose1d.forward.0",
            "the transposed convolution's kernels are turned round: the same statistics",
        ),
        weight("again.weight", lambda value: aten.flip(value, [2])),
    ),
    Case(
        "wave_pool_displaced",
        WAVE,
        _forward(
            "operator",
            "Functional.max_pool1d.0.forward",
            "Module.pool.MaxPool1d.forward.0",
            "the windows begin one later",
        ),
        kernel=tf(F, "max_pool1d", 0, rolled_pool),
    ),
    Case(
        "wave_norm_unbiased",
        WAVE,
        _forward(
            "operator",
            "Functional.batch_norm.0.forward",
            "Module.norm.BatchNorm1d.forward.0",
            "as if the variance were divided by one less",
        ),
        kernel=tf(F, "batch_norm", 0, biased_norm),
    ),
    Case(
        "wave_conv_rounds_operands",
        WAVE,
        _forward(
            "operator",
            "Functional.conv1d.0.forward",
            "Module.stem.Conv1d.forward.0",
            "the convolution rounds its operands to bf16",
        ),
        kernel=tf(F, "conv1d", 0, rounded_inputs),
    ),
    Case(
        "wave_samples_exchanged",
        WAVE,
        _forward(
            "input operator",
            "Functional.conv1d.0.forward",
            "Module.stem.Conv1d.forward.0",
            "two samples' inputs are exchanged, their labels are not: the same statistics",
            phase="input",
        ),
        trainer=SamplesExchanged,
    ),
    Case(
        "story_mask_of_one_head",
        STORY,
        _forward(
            EITHER,
            "Tensor.masked_fill.0.forward",
            "",
            "the mask lets the second head look ahead; what made it is not in the dump",
        ),
        method("mask", second_head_looks_ahead),
    ),
    Case(
        "story_heads_exchanged",
        STORY,
        _forward(
            EITHER,
            "Functional.linear.3.forward",
            "Module.out.Linear.forward.0",
            "the heads are put together in the other order, unseen",
        ),
        method("order", lambda heads: aten.flip(heads, [1])),
    ),
    Case(
        "story_scores_of_a_sample_dropped",
        STORY,
        _forward("operator", "Torch.matmul.0.forward", "", "the scores of one sample become zeros"),
        kernel=tf(torch, "matmul", 0, result(row_dropped)),
    ),
    Case(
        "story_places_displaced",
        STORY,
        _forward(
            EITHER,
            "Functional.embedding.1.forward",
            "Module.places.Embedding.forward.0",
            "the positions begin at one; what made them is not in the dump",
        ),
        method("numbers", lambda places: aten.add.Scalar(places, 1)),
    ),
    Case(
        "story_softmax_in_bf16",
        STORY,
        _forward("operator", "Functional.softmax.0.forward", "", "the softmax is computed in bf16"),
        kernel=tf(F, "softmax", 0, in_type(torch.bfloat16)),
    ),
    Case(
        "story_words_exchanged",
        STORY,
        _forward(
            "parameter",
            "Functional.embedding.0.forward",
            "Module.words.Embedding.forward.0",
            "the embedding's rows come in the other order: the same statistics",
        ),
        weight("words.weight", lambda value: aten.flip(value, [0])),
    ),
    Case(
        "story_rms_eps",
        STORY,
        _forward(
            "operator",
            "Module.norm1.RMSNorm.forward.0",
            "Module.norm1.RMSNorm.forward.0",
            "eps is 1e-3, not 1e-6; torch's rms_norm is not recorded, only its module",
        ),
        setting_of("norm1", "eps", 1e-3),
    ),
    Case(
        "elman_states_exchanged",
        ELMAN,
        _forward(
            EITHER,
            "Functional.linear.3.forward",
            "Module.back.Linear.forward.1",
            "two samples get each other's state at the second time",
        ),
        states_exchanged,
    ),
    Case(
        "elman_earlier_state",
        ELMAN,
        _forward(
            EITHER,
            "Functional.linear.5.forward",
            "Module.back.Linear.forward.2",
            "the third time gets the state of the first: an earlier call's result",
        ),
        earlier_state,
    ),
    Case(
        "elman_hard_tanh",
        ELMAN,
        _forward("operator", "Torch.tanh.1.forward", "", "one tanh is the piecewise linear one"),
        kernel=tf(torch, "tanh", 1, hard_tanh),
    ),
    Case(
        "elman_weight_transposed",
        ELMAN,
        _forward(
            "parameter",
            "Functional.linear.1.forward",
            "Module.back.Linear.forward.0",
            "the recurrent weight is transposed; the first time multiplies it by zeros",
        ),
        weight("back.weight", aten.t),
    ),
)
