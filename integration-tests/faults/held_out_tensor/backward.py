"""Faults of the backward pass, of gradients and of the optimizer."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case
from faults.held_out.planted import B1, EITHER, F1, tf, truth
from faults.kernels import wrong_gradient
from faults.plants.optimizer import option

from .planted import (
    ELMAN,
    ELMAN_SGD,
    FLAT_ADAM,
    MIXER,
    STORY,
    WAVE,
    WAVE_ADAGRAD,
    MomentsExchanged,
    RateOfStep1,
    RowsExchangedAfterUpdate,
    erf_for_tanh,
    exchanged,
    gradient_of,
    hardswish_cut,
    loudest_word_forgotten,
    mish_like_silu,
    samples_exchanged,
)

GRADIENT, OPTIMIZER = "parameter_gradient", "optimizer"

CASES: tuple[Case, ...] = (
    Case(
        "mixer_mish_backward",
        MIXER,
        truth(B1, "operator", "Functional.mish.0.backward", "", "the derivative is silu's"),
        kernel=tf(F, "mish", 0, wrong_gradient(mish_like_silu)),
    ),
    Case(
        "elman_tanh_backward_exchanged",
        ELMAN,
        truth(
            B1, "operator", "Torch.tanh.2.backward", "", "two samples get each other's gradient: the same statistics"
        ),
        kernel=tf(torch, "tanh", 2, wrong_gradient(samples_exchanged)),
    ),
    Case(
        "story_gelu_backward",
        STORY,
        truth(B1, "operator", "Functional.gelu.0.backward", "", "the derivative is erf's, not its approximation's"),
        kernel=tf(F, "gelu", 0, wrong_gradient(erf_for_tanh)),
    ),
    Case(
        "wave_hardswish_backward",
        WAVE,
        truth(
            B1,
            "operator",
            "Functional.hardswish.0.backward",
            "Module.act.Hardswish.backward.0",
            "no gradient gets through where the input is negative",
        ),
        kernel=tf(F, "hardswish", 0, wrong_gradient(hardswish_cut)),
    ),
    Case(
        "mixer_gradient_rows_exchanged",
        MIXER,
        truth(
            GRADIENT,
            "operator",
            "Module.up.Linear.parameters_grad.0",
            "",
            "a hook exchanges two rows of a weight's gradient: the same statistics",
        ),
        gradient_of("up.weight", lambda gradient: exchanged(gradient, 0, 0, 3)),
    ),
    Case(
        "story_word_gradient_lost",
        STORY,
        truth(
            GRADIENT,
            "operator",
            "Module.words.Embedding.parameters_grad.0",
            "",
            "one word's gradient is lost",
        ),
        gradient_of("words.weight", loudest_word_forgotten),
    ),
    Case(
        "wave_gradient_of_norm",
        WAVE,
        truth(
            GRADIENT,
            "operator",
            "Module.norm.BatchNorm1d.parameters_grad.0",
            "",
            "two channels have each other's gradient of the norm's weight: the same statistics",
        ),
        gradient_of("norm.weight", lambda gradient: exchanged(gradient, 0, 0, 3)),
    ),
    Case(
        "adam_beta2_of_flat",
        FLAT_ADAM,
        truth(
            OPTIMIZER,
            "operator",
            "Tensor.mul_.0.forward Tensor.addcmul_.0.forward",
            "",
            "beta2 is 0.998, not 0.999: mul_'s factor of a moment that is still zero, then addcmul_'s value",
        ),
        option("betas", (0.9, 0.998)),
    ),
    Case(
        "adam_moments_exchanged",
        FLAT_ADAM,
        truth(
            OPTIMIZER,
            EITHER,
            "Tensor.lerp_.2.forward",
            "",
            "two parameters have each other's first moment in step 1",
            step=1,
        ),
        trainer=MomentsExchanged,
    ),
    Case(
        "adam_rate_of_step_1",
        FLAT_ADAM,
        truth(
            OPTIMIZER,
            "operator",
            "Tensor.addcdiv_.0.forward",
            "",
            "the learning rate is 0.012, not 0.01, in step 1: addcdiv_'s value",
            step=1,
        ),
        trainer=RateOfStep1,
    ),
    Case(
        "adam_rows_exchanged_after_update",
        FLAT_ADAM,
        truth(
            F1,
            "parameter",
            "Functional.linear.1.forward",
            "Module.head.Linear.forward.0",
            "two rows of the head are exchanged after step 0's update, unseen: the same statistics",
            step=1,
        ),
        trainer=RowsExchangedAfterUpdate,
    ),
    Case(
        "adagrad_eps",
        WAVE_ADAGRAD,
        truth(OPTIMIZER, "operator", "Tensor.add_.1.forward", "", "eps is 1e-5, not 1e-8: add_'s number"),
        option("eps", 1e-5),
    ),
    Case(
        "sgd_decay",
        ELMAN_SGD,
        truth(OPTIMIZER, "operator", "Tensor.add.0.forward", "", "weight_decay is 0.03, not 0.02: add's alpha"),
        option("weight_decay", 0.03),
    ),
)
