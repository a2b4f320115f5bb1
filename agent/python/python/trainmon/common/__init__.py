"""Shared modules: settings, kinds, names, notices, and the guard that keeps errors from the training."""
