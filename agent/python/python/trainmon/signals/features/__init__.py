"""Level-2 features: properties of a module's weights and activations as a whole, beyond a tensor's statistics."""

from __future__ import annotations

from trainmon.signals.features.watched import Features

__all__ = ["Features"]
