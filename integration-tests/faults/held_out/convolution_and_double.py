"""Faults of a convolutional net, and of a net in double."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from faults.case import Case, Setting
from faults.kernels import wrong_gradient
from faults.plants.optimizer import option

from .planted import (
    B1,
    EITHER,
    F1,
    RESNET,
    VAE,
    Colours,
    StateForgotten,
    elu_through,
    flipped_kernel,
    in_single,
    loss_option,
    mean_of_part,
    other_deviation,
    quiet_noise,
    relu_soft,
    setting_of,
    sign_flipped,
    tf,
    truth,
    wide_kernel,
)

CASES: tuple[Case, ...] = (
    Case(
        "resnet_dilation",
        RESNET,
        truth(
            F1,
            "operator",
            "Functional.conv2d.1.forward",
            "Module.depth.Conv2d.forward.0",
            "dilation and padding 2, not 1: the same shape",
        ),
        wide_kernel,
    ),
    Case(
        "resnet_pool_counts",
        RESNET,
        truth(
            F1,
            "operator",
            "Functional.avg_pool2d.0.forward",
            "Module.pool.AvgPool2d.forward.0",
            "the padding does not count in the means",
        ),
        setting_of("pool", "count_include_pad", False),
    ),
    Case(
        "resnet_interpolation",
        RESNET,
        truth(F1, "operator", "Functional.interpolate.0.forward", "", "bilinear, not nearest"),
        setting_of("", "mode", "bilinear"),
    ),
    Case(
        "resnet_elu_alpha",
        RESNET,
        truth(F1, "operator", "Functional.elu.0.forward", "Module.act.ELU.forward.0", "alpha is 0.5, not 1"),
        setting_of("act", "alpha", 0.5),
    ),
    Case(
        "resnet_elu_backward",
        RESNET,
        truth(
            B1, "operator", "Functional.elu.0.backward", "Module.act.ELU.backward.0", "every gradient is let through"
        ),
        kernel=tf(F, "elu", 0, wrong_gradient(elu_through)),
    ),
    Case(
        "resnet_kernel_flipped",
        RESNET,
        truth(
            F1,
            "parameter operator cannot_tell",
            "Functional.conv2d.1.forward",
            "Module.depth.Conv2d.forward.0",
            "the depthwise kernels are turned round: their statistics but for rounding agree",
        ),
        flipped_kernel,
    ),
    Case(
        "resnet_colours",
        RESNET,
        truth(
            "input",
            "input operator cannot_tell",
            "Functional.conv2d.0.forward",
            "Module.stem.Conv2d.forward.0",
            "the channels come in the other order: their statistics but for rounding agree",
        ),
        trainer=Colours,
    ),
    Case(
        "resnet_label_smoothing",
        RESNET,
        truth(F1, "operator", "Functional.cross_entropy.0.forward", "", "0.2, not 0.1"),
        loss_option("label_smoothing", 0.2),
    ),
    Case(
        "resnet_norm_reads_part",
        RESNET,
        truth(
            F1,
            "operator",
            "Functional.batch_norm.0.forward",
            "Module.norm.BatchNorm2d.forward.0",
            "the norm takes the last row as zeros",
        ),
        kernel=tf(F, "batch_norm", 0, mean_of_part),
    ),
    Case(
        "resnet_nesterov",
        Setting("resnet", optimizer="nesterov"),
        truth(
            "optimizer",
            "operator",
            "Tensor.add.0.forward Tensor.add_.1.forward",
            "",
            "plain momentum: the look ahead is missing in target",
        ),
        option("nesterov", False),
    ),
    Case(
        "resnet_momentum_lost",
        Setting("resnet", optimizer="sgd", steps=2),
        truth(
            "optimizer",
            "operator input",
            "Tensor.mul_.0.forward Tensor.add_.1.forward",
            "",
            "the momentum is forgotten before step 1's update",
            step=1,
        ),
        trainer=StateForgotten,
    ),
    Case(
        "vae_softplus_beta",
        VAE,
        truth(F1, "operator", "Functional.softplus.0.forward", "", "beta is 2, not 1"),
        setting_of("", "beta", 2),
    ),
    Case(
        "vae_deviation",
        VAE,
        truth(
            F1,
            "operator input",
            "Tensor.__rmul__.0.forward Tensor.__mul__.0.forward Torch.exp.0.forward",
            "",
            "the variance stands for the deviation: its half is missing in target",
        ),
        other_deviation,
    ),
    Case(
        "vae_noise",
        VAE,
        truth(
            F1,
            EITHER,
            "Tensor.__mul__.0.forward",
            "",
            "the noise is 0.9 times what it was; it comes from nothing recorded",
        ),
        quiet_noise,
    ),
    Case(
        "vae_summed",
        VAE,
        truth(F1, "operator", "Functional.mse_loss.0.forward", "", "summed, not averaged"),
        setting_of("", "reduction", "sum"),
    ),
    Case(
        "vae_linear_in_single_md5",
        Setting("vae", task="md5"),
        truth(
            F1,
            "operator",
            "Functional.linear.3.forward",
            "Module.decode.Linear.forward.0",
            "one linear of the double model is computed in float32",
        ),
        kernel=tf(F, "linear", 3, in_single),
    ),
    Case(
        "vae_weight_of_divergence",
        VAE,
        truth(F1, "operator", "Tensor.__rmul__.1.forward", "", "0.2, not 0.1"),
        setting_of("", "weight", 0.2),
    ),
    Case(
        "vae_gradient_sign",
        Setting("vae", optimizer="amsgrad"),
        truth(
            "parameter_gradient",
            "operator",
            "Module.middle.Linear.parameters_grad.0",
            "",
            "one weight's gradient has the other sign: its norm is the same",
        ),
        sign_flipped,
    ),
    Case(
        "vae_relu_backward",
        VAE,
        truth(B1, "operator", "Torch.relu.0.backward", "", "gradients of small negatives get through"),
        kernel=tf(torch, "relu", 0, wrong_gradient(relu_soft)),
    ),
    Case(
        "vae_amsgrad",
        Setting("vae", optimizer="amsgrad"),
        truth(
            "optimizer",
            "operator",
            "Torch.maximum.0.forward",
            "",
            "no greatest second moment: maximum is missing in target",
        ),
        option("amsgrad", False),
    ),
)
