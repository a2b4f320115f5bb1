"""Keeps steps and replays one of them under capture, for an alert's action `replay`.

An alert is raised after its step, when the optimizer has changed the parameters. trainmon therefore keeps the latest
steps: the earlier parameters and buffers, the arguments of the calls, the states of the random generators. When the
ranks have agreed on a step, it is replayed between two steps, up to the optimizer's step, and everything is restored.
"""

from trainmon.replay.replay import Replay, StepIsOver, wrapped

__all__ = ["Replay", "StepIsOver", "wrapped"]
