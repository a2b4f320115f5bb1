"""The device kit: everything there is to learn from one GPU, in one call (docs/device.md)."""
