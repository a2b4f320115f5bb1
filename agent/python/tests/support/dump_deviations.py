"""Where our dumps differ from msprobe's of the same program, and why.

`docs/proof/capture-msprobe.md` has the table.
"""

from __future__ import annotations

from enum import Enum

from support.dumps import ABSENT, NUMBERS, Difference


class Why(Enum):
    """The reasons, in the words of the table."""

    INTEGERS_AND_FLOAT64 = "mean and norm of integers and float64 are computed"
    HIGH_PRECISION = "`precision: high` computes mean and norm"
    EVERY_DTYPE = "mean and norm of every dtype are computed"
    OVERWRITTEN = "msprobe computes the checksum of an input after the call has overwritten it"
    LINEAR_IS_CORE = "`linear` has risk level CORE"
    SCOPE_END = "a scope includes all of its last entry"
    XOR_OF_SCALAR = "the xor of a tensor without dimensions is computed too"
    DIRECTORY = "each dump names its own directory"
    DEVICE = "devices are written as torch writes them"
    POSITIONAL = "a positional dtype or device is described"
    NOT_RECORDED = "the second step was recorded without its tensor files"
    ARRAY = "an array is described like a tensor, with its xor if requested"
    STOPPED_MODULE = "a module whose recomputation stops early returns nothing"
    LOST_FUNCTIONS = "msprobe loses the functions after a recomputation that stops early"
    RECEIVED_EARLY = "msprobe reads the received data of a batch before it arrives"
    LATER_BATCH = "msprobe adds the operations of a later batch to this one"


_INTEGERS = ("torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8")


def reason(case: str, config: dict, difference: Difference) -> str | None:
    """Why a field may differ; none: it may not."""
    for rule in RULES:
        found = rule(case, config, difference)
        if found is not None:
            return found.value
    return None


def _high_precision(case: str, config: dict, difference: Difference) -> Why | None:
    if config.get("precision", "high") != "high" or difference.path[-1] not in ("Mean", "Norm"):
        return None
    is_number = isinstance(difference.ours, float | int)
    dtype = (difference.around or {}).get("dtype", "")
    if difference.theirs is None and is_number:
        if dtype in (*_INTEGERS, "torch.float64"):
            return Why.INTEGERS_AND_FLOAT64
        if config.get("precision") == "high":
            return Why.HIGH_PRECISION
        if dtype.startswith(("torch.complex", "torch.float8")):
            return Why.EVERY_DTYPE
    return None


def _race(case: str, config: dict, difference: Difference) -> Why | None:
    # Both are seen in the training itself: an input that the call overwrites.
    if difference.path[-1] == "md5" and ".__setitem__." in difference.entry and "input_args" in difference.path:
        return Why.OVERWRITTEN
    return None


def _linear_is_core(case: str, config: dict, difference: Difference) -> Why | None:
    if config.get("risk_level") != "CORE":
        return None
    if difference.entry.startswith("Functional.linear.") and difference.theirs is ABSENT:
        return Why.LINEAR_IS_CORE
    is_stack = difference.file.endswith("stack.json") and difference.path == ("names",)
    only_one = set(difference.ours) ^ set(difference.theirs) if is_stack else {""}
    if all(name.startswith("Functional.linear.") for name in only_one):
        return Why.LINEAR_IS_CORE
    return None


def _scope_is_closed(case: str, config: dict, difference: Difference) -> Why | None:
    scope = config.get(config.get("task", ""), {}).get("scope") or []
    if len(scope) == 2 and difference.theirs is ABSENT and difference.entry == scope[1]:
        return Why.SCOPE_END
    return None


def _xor_of_scalar(case: str, config: dict, difference: Difference) -> Why | None:
    summary = config.get(config.get("task", ""), {}).get("summary_mode")
    is_scalar = (difference.around or {}).get("shape") == []
    if summary == "xor" and difference.path[-1] == "md5" and is_scalar and isinstance(difference.theirs, float):
        return Why.XOR_OF_SCALAR
    return None


def _place(case: str, config: dict, difference: Difference) -> Why | None:
    if difference.path[-1] == "dump_data_dir" and str(difference.ours).endswith("/dump_tensor_data"):
        return Why.DIRECTORY
    return None


def _checked_values(case: str, config: dict, difference: Difference) -> Why | None:
    theirs, ours = difference.theirs, difference.ours
    if theirs == "cpu:None" and ours == "cpu":
        return Why.DEVICE
    # msprobe wrote `{}`: every key of ours is one more.
    is_key = theirs is ABSENT and difference.path[-1] in ("type", "value") and "input_args" in difference.path
    if is_key and (ours in ("torch.dtype", "torch.device", "cpu") or str(ours).startswith("torch.")):
        return Why.POSITIONAL
    return None


def _older_recording(case: str, config: dict, difference: Difference) -> Why | None:
    """Its second step's tensor files are missing; beside msprobe's run here they are compared."""
    is_file = difference.file.startswith("step1/") and difference.path[0] == "files"
    if case == "mix_tensor_md5" and is_file and difference.theirs is ABSENT:
        return Why.NOT_RECORDED
    return None


def _array(case: str, config: dict, difference: Difference) -> Why | None:
    is_array = (difference.around or {}).get("type") == "numpy.ndarray"
    if is_array and ABSENT in (difference.ours, difference.theirs) and difference.path[-1] in (*NUMBERS, "md5"):
        return Why.ARRAY
    return None


def _recomputed(case: str, config: dict, difference: Difference) -> Why | None:
    if case != "xor_list_models":
        return None
    lost = {"Torch.relu.2.forward", "Torch.relu.3.forward", "Functional.linear.3.forward"}
    if difference.entry.endswith(".Blk.forward.1") and difference.ours is ABSENT and difference.theirs in ([None], {}):
        return Why.STOPPED_MODULE
    function = difference.path[-1].partition(".input.")[0]
    is_lost = bool(lost & {difference.entry, function}) and difference.theirs is ABSENT
    is_stack = difference.path == ("names",)
    if is_lost or (is_stack and set(difference.ours) ^ set(difference.theirs) <= lost):
        return Why.LOST_FUNCTIONS
    if difference.path == ("data", "(order)"):
        ours = [name for name in difference.ours if name not in lost]
        if ours == [name for name in difference.theirs if name not in lost]:
            return Why.LOST_FUNCTIONS
    return None


#: What each of two ranks receives in the batch, into a buffer of zeros.
_RECEIVED = {"Max": 6.0, "Min": 6.0, "Mean": 6.0, "Norm": 12.0}


def _sent(case: str, config: dict, difference: Difference) -> Why | None:
    if case != "dist_gloo":
        return None
    theirs, ours, key = difference.theirs, difference.ours, difference.path[-1]
    is_of_batch = difference.entry.startswith("Distributed.batch_isend_irecv.") and "output" in difference.path
    if is_of_batch and theirs == 0.0 and ours == _RECEIVED.get(key):
        return Why.RECEIVED_EARLY
    is_single = difference.entry.startswith(("Distributed.isend.", "Distributed.irecv."))
    # The operations of the batch stand behind those of the call.
    if is_single and key == "output" and ours and ours == theirs[: len(ours)]:
        return Why.LATER_BATCH
    return None


RULES = (
    _high_precision,
    _race,
    _linear_is_core,
    _scope_is_closed,
    _xor_of_scalar,
    _place,
    _checked_values,
    _older_recording,
    _array,
    _recomputed,
    _sent,
)
