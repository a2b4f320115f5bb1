"""Measurement of tensors: on the host at once, on a device in batches; the global norm."""
