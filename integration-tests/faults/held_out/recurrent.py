"""Faults of recurrent nets."""

from __future__ import annotations

import torch

from faults.case import Case, Setting
from faults.kernels import wrong_gradient
from faults.plants.optimizer import option

from .planted import (
    B1,
    EITHER,
    F1,
    GRU,
    LSTM,
    OtherTokens,
    UpdatedTwice,
    evaluated,
    first_state,
    forgotten_state,
    hard_sigmoid,
    moved,
    swapped_gates,
    tanh_squared,
    tf,
    truth,
    without_bias,
)

CASES: tuple[Case, ...] = (
    Case(
        "gru_gates_swapped",
        GRU,
        truth(F1, EITHER, "Tensor.__mul__.0.forward", "", "the two gates are exchanged"),
        swapped_gates,
    ),
    Case(
        "gru_hard_sigmoid",
        GRU,
        truth(F1, "operator", "Torch.sigmoid.2.forward", "", "one sigmoid is the piecewise linear one"),
        kernel=tf(torch, "sigmoid", 2, hard_sigmoid),
    ),
    Case(
        "gru_state_forgotten",
        GRU,
        truth(
            F1,
            EITHER,
            "Functional.linear.4.forward",
            "Module.gates.Linear.forward.2",
            "the third token begins with a state of zeros",
        ),
        forgotten_state,
    ),
    Case(
        "gru_tanh_backward",
        GRU,
        truth(B1, "operator", "Torch.tanh.1.backward", "", "the derivative has the fourth power"),
        kernel=tf(torch, "tanh", 1, wrong_gradient(tanh_squared)),
    ),
    Case(
        "gru_embedding_element",
        GRU,
        truth(
            F1,
            "parameter",
            "Functional.embedding.0.forward",
            "Module.tokens.Embedding.forward.0",
            "one element of the embedding is another",
        ),
        moved("tokens", "weight", row=32),
    ),
    Case(
        "gru_bias_left_out",
        GRU,
        truth(
            F1,
            "operator parameter",
            "Functional.linear.1.forward",
            "Module.candidate.Linear.forward.0",
            "the candidate's linear has no bias",
        ),
        without_bias,
    ),
    Case(
        "gru_gate_weight_md5",
        Setting("gru", task="md5"),
        truth(
            F1,
            "parameter",
            "Functional.linear.0.forward",
            "",
            "one element of the gates' weight is another; it is for the state, still zero",
        ),
        moved("gates", "weight", row=40, by=0.05),
    ),
    Case(
        "gru_tokens_step_1",
        Setting("gru", steps=2, optimizer="rmsprop"),
        truth(
            "input",
            EITHER,
            "Functional.embedding.0.forward",
            "Module.tokens.Embedding.forward.0",
            "one token of step 1 is another",
            step=1,
        ),
        trainer=OtherTokens,
    ),
    Case(
        "rmsprop_alpha",
        Setting("gru", optimizer="rmsprop"),
        truth("optimizer", "operator", "Tensor.mul_.0.forward", "", "alpha is 0.9, not 0.99"),
        option("alpha", 0.9),
    ),
    Case(
        "rmsprop_eps",
        Setting("gru", optimizer="rmsprop"),
        truth("optimizer", "operator", "Tensor.add_.0.forward", "", "eps is 1e-4, not 1e-8"),
        option("eps", 1e-4),
    ),
    Case(
        "lstm_recurrent_weight",
        LSTM,
        truth(
            F1,
            "operator parameter input",
            "Functional.batch_norm.0.forward",
            "Module.rnn.LSTM.forward.0",
            "one element of weight_hh is another; torch's lstm is not recorded, only its module",
        ),
        moved("rnn", "weight_hh_l0", row=30),
    ),
    Case(
        "lstm_forget_bias",
        Setting("lstm", level="L0"),
        truth(
            F1,
            "parameter operator",
            "Module.rnn.LSTM.forward.0",
            "Module.rnn.LSTM.forward.0",
            "one element of the forget gate's bias is greater by one; level L0",
        ),
        moved("rnn", "bias_ih_l0", row=20, by=1.0),
    ),
    Case(
        "lstm_state_before_last",
        LSTM,
        truth(
            F1,
            EITHER,
            "Functional.batch_norm.0.forward",
            "Module.norm.BatchNorm1d.forward.0",
            "the state before the last goes on; what takes it is not recorded",
        ),
        first_state,
    ),
    Case(
        "lstm_norm_evaluated",
        LSTM,
        truth(
            F1,
            "operator",
            "Tensor.add_.0.forward Functional.batch_norm.0.forward",
            "Module.norm.BatchNorm1d.forward.0",
            "the norm is not in training mode: the counting of batches is missing in target",
        ),
        evaluated,
    ),
    Case(
        "lstm_updated_twice",
        Setting("lstm", steps=2, optimizer="sgd"),
        truth(
            "optimizer",
            EITHER + " parameter",
            "Tensor.mul_.0.forward",
            "",
            "step 0's update is made twice: calls too many in target",
        ),
        trainer=UpdatedTwice,
    ),
)
