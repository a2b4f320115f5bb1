"""Tensors on a device: measured there, read a step later. The host never waits."""

from __future__ import annotations

from trainmon.device.queue import DeviceQueue

__all__ = ["DeviceQueue"]
