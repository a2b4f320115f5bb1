"""Faults of what the net is fed: they show at the very input."""

from __future__ import annotations

from typing import Any

import torch

from faults.case import Case, Setting, Truth
from faults.trainer import Trainer


class OtherElement(Trainer):
    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        inputs[1, 4] += 0.75
        return inputs, labels


class OtherBatch(Trainer):
    """A step too far."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        return super().batch(step + 1, micro)


class RowsSwapped(Trainer):
    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs[[1, 0, 2, 3]], labels[[1, 0, 2, 3]]


class LabelsShifted(Trainer):
    """Predicts the token itself, not the next."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, _ = super().batch(step, micro)
        return inputs, inputs.clone()


class Truncated(Trainer):
    """Pixels went through whole numbers."""

    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        inputs, labels = super().batch(step, micro)
        return inputs.to(torch.int32).to(torch.float32), labels


class MicroRepeated(Trainer):
    def batch(self, step: int, micro: int) -> tuple[Any, Any]:
        return super().batch(step, 0)


class MicroDropped(Trainer):
    def load(self, step: int) -> None:
        super().load(step)
        del self.batches[-1]


class MiddleMicroDropped(Trainer):
    def load(self, step: int) -> None:
        super().load(step)
        del self.batches[1]


def one_too_far(run: Trainer) -> None:
    run.net.places = lambda time: torch.arange(1, time + 1)


def _truth(operators: tuple[str, ...], modules: tuple[str, ...], what: str, **other: Any) -> Truth:
    return Truth(
        **{"phase": "input", "verdict": "input", "operators": operators, "modules": modules, "what": what} | other
    )


FC1 = (("Functional.linear.0.forward",), ("Module.fc1.Linear.forward.0",))

CASES = (
    Case("input_element", Setting("mlp"), _truth(*FC1, "one element of the input is another"), trainer=OtherElement),
    Case(
        "input_batch_gpt",
        Setting("gpt"),
        _truth(("Functional.embedding.0.forward",), ("Module.tokens.Embedding.forward.0",), "the next step's batch"),
        trainer=OtherBatch,
    ),
    Case(
        "input_rows_swapped",
        Setting("mlp"),
        _truth(
            *FC1,
            "two samples and their labels change places: the same step but for rounding, and so are its statistics",
            verdict="cannot_tell",
            also=("none", "input"),
        ),
        trainer=RowsSwapped,
    ),
    Case(
        "input_rows_swapped_md5",
        Setting("mlp", task="md5"),
        _truth(*FC1, "two samples and their labels change places: the checksum differs from the input on"),
        trainer=RowsSwapped,
    ),
    Case(
        "input_truncated",
        Setting("conv"),
        _truth(
            ("Functional.conv2d.0.forward",), ("Module.stem.Conv2d.forward.0",), "inputs went through whole numbers"
        ),
        trainer=Truncated,
    ),
    Case(
        "labels_shifted",
        Setting("gpt"),
        _truth(("Functional.cross_entropy.0.forward",), (), "each token is to predict itself, not the next"),
        trainer=LabelsShifted,
    ),
    Case(
        "positions_shifted",
        Setting("gpt"),
        _truth(
            ("Functional.embedding.1.forward",),
            ("Module.positions.Embedding.forward.0",),
            "positions count from 1; what counts them is not in the dump",
        ),
        one_too_far,
    ),
    Case(
        "micro_batch_repeated",
        Setting("mlp", micro=2),
        _truth(
            ("Functional.linear.3.forward",),
            ("Module.fc1.Linear.forward.1",),
            "the second micro-batch is the first again",
        ),
        trainer=MicroRepeated,
    ),
    Case(
        "micro_batch_dropped_last",
        Setting("mlp", micro=2),
        _truth(
            ("Functional.linear.3.forward",),
            ("Module.fc1.Linear.forward.1",),
            "the second of two micro-batches is not computed: its calls are missing in target",
            also=("input",),
            phase="forward",
            verdict="operator",
        ),
        trainer=MicroDropped,
    ),
    Case(
        "micro_batch_dropped",
        Setting("mlp", micro=3),
        _truth(
            ("Functional.linear.3.forward",),
            ("Module.fc1.Linear.forward.1",),
            "the second of three micro-batches is not computed: target's second call has the third's data",
            also=("operator",),
        ),
        trainer=MiddleMicroDropped,
    ),
    Case(
        "weights_not_tied",
        Setting("tied"),
        Truth(
            "parameter_gradient",
            "operator",
            ("Module.tokens.Embedding.parameters_grad.0", "Module.head.Linear.parameters_grad.0"),
            (),
            "the head's weight is a copy of the embedding's: values agree, the gradients are not summed",
        ),
        lambda run: setattr(run.net.head, "weight", torch.nn.Parameter(run.net.tokens.weight.detach().clone())),
    ),
)
