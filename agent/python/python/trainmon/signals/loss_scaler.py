"""torch's loss scaler: gradients are recorded without the loss scale, and skipped steps are detected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainmon.frameworks.base import inner_optimizer
from trainmon.measurement.labels import UNSCALED, inverse

if TYPE_CHECKING:
    import torch


class LossScale:
    """The state of the scaler that serves our optimizer."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._scaler: Any = None
        self._is_made = False
        self._is_asked = False
        #: Scalers that serve other optimizers: ours stepped without them.
        self._foreign: set[int] = set()
        self._reciprocal: float | torch.Tensor | None = None

    def loss_is_scaled(self, scaler: Any) -> None:
        """Registers a scaled loss. Its optimizer is known when the scaler, or other code, makes our step."""
        if id(scaler) not in self._foreign:
            self._scaler = scaler if scaler.is_enabled() else None

    def in_backward(self) -> float | torch.Tensor:
        """The factor of a gradient of the backward pass: 1 / scale, a 0-d tensor if that is on a device. The same
        object until the step: gradients with the same factor are measured together."""
        if self._scaler is None or self._scaler._scale is None:
            return UNSCALED
        if self._reciprocal is None:
            self._reciprocal = inverse(self._scaler._scale)
        return self._reciprocal

    def before_step(self) -> float | torch.Tensor:
        """The factor of a gradient that the optimizer is about to use: 1 if the scaler has divided it already."""
        if self._scaler is None or self._is_divided():
            return UNSCALED
        return self.in_backward()

    def _is_divided(self) -> bool:
        states = self._scaler._per_optimizer_states
        for optimizer in (self._optimizer, inner_optimizer(self._optimizer)):
            if optimizer is not None and id(optimizer) in states:
                return bool(states[id(optimizer)]["stage"].value > 0)
        # A wrapper of the watched optimizer passed the scaler.
        return any(state["stage"].value > 0 for state in states.values())

    def _is_known_to(self, scaler: Any) -> bool:
        """Whether the scaler has processed our optimizer since its last update (`unscale_`)."""
        known = scaler._per_optimizer_states
        return id(self._optimizer) in known or id(inner_optimizer(self._optimizer)) in known

    def before_scaler_step(self, optimizer: Any) -> None:
        """Registers that the scaler is about to decide whether the optimizer steps."""
        if self.is_ours(optimizer):
            self._is_made = False
            self._is_asked = True

    def step_is_made(self) -> None:
        """Registers a step of the optimizer."""
        self._is_made = True
        if self._scaler is not None and not self._is_asked and not self._is_known_to(self._scaler):
            self._foreign.add(id(self._scaler))
            self._scaler = None

    def kept(self) -> Any:
        """The scaler's current state, for `put_back`; None without one."""
        scaler = self._scaler
        if scaler is None or scaler._scale is None:
            return None
        counts = scaler._growth_tracker
        return (
            scaler,
            scaler._scale.clone(),
            None if counts is None else counts.clone(),
            dict(scaler._per_optimizer_states),
        )

    def put_back(self, kept: Any) -> None:
        """Restores the scaler's state from `kept`."""
        if kept is None:
            return
        scaler, scale, counts, states = kept
        scaler._scale.copy_(scale)
        if counts is not None:
            scaler._growth_tracker.copy_(counts)
        scaler._per_optimizer_states.clear()
        scaler._per_optimizer_states.update(states)

    def begin_next_step(self) -> None:
        """Prepares for the next step: the scale may change."""
        self._is_asked = False
        self._reciprocal = None

    def left_out(self, optimizer: Any) -> bool:
        """Whether the scaler skipped the requested step."""
        return self.is_ours(optimizer) and not self._is_made

    def is_ours(self, optimizer: Any) -> bool:
        """Whether this is the watched optimizer, or wraps it or is wrapped by it."""
        ours = self._optimizer
        if optimizer is ours:
            return True
        return inner_optimizer(optimizer) is ours or inner_optimizer(ours) is optimizer
