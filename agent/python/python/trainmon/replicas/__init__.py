"""Comparison of the copies that several ranks hold of parameters and optimizer states, bit by bit."""

from trainmon.replicas.check import ReplicaCheck

__all__ = ["ReplicaCheck"]
