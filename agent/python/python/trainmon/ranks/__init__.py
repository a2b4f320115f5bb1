"""Exchanges between ranks beside the training: sums for the norm, changes they agree on, the place where a job
hangs."""
