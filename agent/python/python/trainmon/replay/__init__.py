"""Steps that are kept, and one of them run again under capture: what an alert's action `replay` asks for.

An alert is found behind its step, when the optimizer has changed the parameters. So the latest steps are kept:
parameters and buffers as they were, the arguments of the calls, the states of the random generators. When the ranks
have agreed on it one of them is run again between two steps, up to the optimizer's step, and everything is put back as
it was.
"""

from trainmon.replay.replay import Replay, StepIsOver, wrapped

__all__ = ["Replay", "StepIsOver", "wrapped"]
