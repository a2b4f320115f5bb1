"""Copies that several ranks hold of parameters and optimizer states: are they the same, bit by bit?"""

from trainmon.replicas.check import ReplicaCheck

__all__ = ["ReplicaCheck"]
