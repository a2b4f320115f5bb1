"""A tensor on its way to a reading: measured on the host at once, on a device in batches; the global norm."""
