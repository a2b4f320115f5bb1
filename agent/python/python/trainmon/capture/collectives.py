"""What ranks send each other, captured while a capture is on."""

from __future__ import annotations

from trainmon._trainmon import Capture


class Collectives:
    """torch.distributed's operations."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def attach(self) -> None:
        """From here on they are captured."""

    def detach(self) -> None:
        """Everything is as it was."""
