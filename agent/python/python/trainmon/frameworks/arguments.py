"""Checks of the arguments of `watch`: wrong use is reported at once, before anything is measured.

Frameworks wrap models and optimizers in many ways: arguments that are not certainly wrong are accepted.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import CONFIG_KEYS, check_run_name, did_you_mean
from trainmon.common.world import world_rank
from trainmon.frameworks.deepspeed_layouts import is_deepspeeds

if TYPE_CHECKING:
    import torch

    from trainmon._trainmon import Monitor

#: The number of parameters named in a message.
_MOST_NAMED = 3


def check_keys(function: str, keys: Iterable[str], own: Iterable[str]) -> None:
    """Raises `TypeError` for a keyword that is no key of a config file. `own`: the function's own arguments."""
    for key in keys:
        if key not in CONFIG_KEYS:
            meant = did_you_mean(key, [*own, *CONFIG_KEYS])
            raise TypeError(
                f"{function}: unknown argument `{key}`" + ("" if meant is None else f"; did you mean `{meant}`?") + "\n"
                "hint: pass one of its own arguments or a key of a config file (docs/configuration.md)"
            )


def check_name(name: Any) -> None:
    """Raises `TypeError` or `ValueError` for a name that no run can have. None is the default."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"name: expected a text or None, found {_kind(name)}\nhint: name=str(...)")
    check_run_name(name)


def check(model: Any, optimizer: Any) -> None:
    """Raises `TypeError` for objects that are no model or no optimizer, `ValueError` for an optimizer of another
    model."""
    check_model(model, optimizer)
    check_optimizer(optimizer)
    check_belongs(models_of(model), optimizer)


def warn_of_misuse(monitor: Monitor, model: Any, optimizer: Any) -> bool:
    """As `check`, for scripts that were written for msprobe: wrong arguments cause a warning, and the training
    continues. False if the model is invalid: the monitor is then shut down, because it has nothing to measure."""
    try:
        check_model(model, optimizer)
    except (TypeError, ValueError) as error:
        message, hint = _split(error)
        monitor.say("warning", f"{message}: nothing is measured; training continues", hint)
        monitor.shutdown()
        return False
    try:
        check_optimizer(optimizer)
        check_belongs(models_of(model), optimizer)
    except (TypeError, ValueError) as error:
        monitor.say("warning", *_split(error))
    return True


def usable_group(monitor: Monitor, name: str, group: Any) -> Any:
    """The group; None, with a warning, if it is none."""
    try:
        check_groups(**{name: group})
    except (TypeError, RuntimeError) as error:
        message, hint = _split(error)
        monitor.say("warning", f"{message}: it is ignored", hint)
        return None
    return group


def _split(error: Exception) -> tuple[str, str | None]:
    message, _, hint = str(error).partition("\nhint: ")
    return message, hint or None


def check_number(name: str, value: Any, least: int) -> int:
    """The count as a plain integer. Raises `TypeError` or `ValueError` if it is none."""
    count = integer_of(value)
    if count is None:
        raise TypeError(f"{name}: expected an integer of at least {least}, found {value!r}")
    if count < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, found {count}")
    return count


def integer_of(value: Any) -> int | None:
    """A plain integer for any integer type, such as numpy's; None for other objects and for truth values."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:
        # An `__index__` may fail in any way.
        return None


def check_groups(**groups: Any) -> None:
    """Raises `TypeError` for objects that are no process group, `RuntimeError` before torch.distributed is
    initialised."""
    for name, group in groups.items():
        if group is None:
            continue
        if world_rank() is None:
            raise RuntimeError(
                f"{name}: torch.distributed is not initialised\n"
                "hint: call `watch` after `init_process_group`, or omit the argument"
            )
        if isinstance(group, list | tuple | dict | str):
            raise TypeError(
                f"{name}: expected a process group, found {_kind(group)}\n"
                "hint: pass a group from `torch.distributed.new_group`"
            )
        if callable(getattr(group, "get_group", None)):
            raise TypeError(f"{name}: expected a process group, found {_kind(group)}\nhint: pass `mesh.get_group()`")


def models_of(model: Any) -> list[Any]:
    """The model, or its chunks, as a list."""
    return list(model) if isinstance(model, list | tuple) else [model]


def parameters_of(models: Iterable[torch.nn.Module]) -> Iterator[torch.Tensor]:
    """The parameters of all models."""
    return (one for model in models for one in model.parameters())


def check_model(model: Any, optimizer: Any = None) -> None:
    """Raises `TypeError` unless it is a module or a list of modules."""
    import torch

    models = models_of(model)
    if not models:
        raise ValueError("model: expected a torch.nn.Module or a list of them, found an empty list")
    for one in models:
        if isinstance(one, torch.nn.Module):
            continue
        if _has(one, "param_groups") and isinstance(optimizer, torch.nn.Module):
            raise TypeError(
                f"model and optimizer are swapped: expected `watch(model, optimizer)`, found "
                f"`watch({_kind(one)}, {_kind(optimizer)})`"
            )
        hint = f"\nhint: {wanted}" if (wanted := _module_in(one)) else ""
        raise TypeError(f"model: expected a torch.nn.Module or a list of them, found {_kind(one)}{hint}")


def _module_in(one: Any) -> str | None:
    """A hint for objects that contain the module."""
    if isinstance(one, Mapping):
        return "pass `list(models.values())`"
    if isinstance(one, Iterator):
        return "pass the module itself, not an iterator over its parts"
    for name in ("module", "model"):
        if _has(one, name):
            return f"pass its `{name}`"
    return None


def check_optimizer(optimizer: Any) -> None:
    """Raises `TypeError` for objects that step no parameters. None, and any object with groups of parameters or a
    `step`, is accepted."""
    if optimizer is None or is_deepspeeds(optimizer, "DeepSpeedEngine"):
        return
    if isinstance(optimizer, list | tuple):
        _check_several(optimizer)
        return
    if _has(optimizer, "param_groups") and _has(optimizer, "step"):
        return
    expected = f"optimizer: expected a torch.optim.Optimizer, found {_kind(optimizer)}"
    if _is_scheduler(optimizer):
        inside = "scheduler.optimizer" if _has(optimizer, "optimizer") else "the optimizer whose learning rate it sets"
        raise TypeError(f"{expected}\nhint: pass {inside}")
    import torch

    if isinstance(optimizer, torch.nn.Module):
        raise TypeError(f"{expected}\nhint: call `watch(model, optimizer)`; pass several models as a list")
    if any(one.__name__.endswith("GradScaler") for one in type(optimizer).__mro__):
        raise TypeError(f"{expected}\nhint: pass the optimizer that it steps; trainmon finds the scaler itself")
    if not _has(optimizer, "step"):
        raise TypeError(f"{expected}\nhint: pass the object whose `step()` changes the parameters, or None")


def _check_several(optimizers: Sequence[Any]) -> None:
    """Raises `TypeError` unless all are torch's optimizers, without duplicates."""
    if not optimizers:
        raise TypeError("optimizer: expected one or several, found an empty list")
    if len({id(one) for one in optimizers}) < len(optimizers):
        raise TypeError("optimizer: the list has the same one twice\nhint: pass each once")
    for one in optimizers:
        check_optimizer(one)
        if not hasattr(one, "register_step_pre_hook"):
            raise TypeError(
                f"optimizer: expected torch optimizers in the list, found {_kind(one)}\n"
                "hint: call `watch` once for each, with an output_dir of its own"
            )


def _is_scheduler(one: Any) -> bool:
    if _has(one, "zero_grad"):
        # An optimizer that sets its own learning rate.
        return False
    is_named_so = any(kind.__name__.endswith("Scheduler") for kind in type(one).__mro__)
    return is_named_so or type(one).__name__ == "ReduceLROnPlateau" or _has(one, "get_last_lr") or _has(one, "get_lr")


def check_belongs(models: Sequence[torch.nn.Module], optimizer: Any) -> None:
    """Raises `ValueError` if a torch optimizer has parameters, and none of them is the models'."""
    stepped = stepped_by(optimizer)
    try:
        named = [(name, one) for model in models for name, one in model.named_parameters()]
        is_strange = bool(stepped and named) and _steps_others(models, optimizer, [one for _, one in named], stepped)
    except Exception:
        # If it cannot be determined, it is not certainly wrong.
        return
    if not is_strange:
        return
    shapes = _some([str(tuple(one.shape)) for one in stepped])
    kinds = ", ".join(_kind(model) for model in models)
    raise ValueError(
        f"optimizer: none of the parameters that this {_kind(optimizer)} steps ({len(stepped)}: {shapes}) belongs to "
        f"the model, {kinds} ({len(named)}: {_some([name for name, _ in named])})\n"
        "hint: create the optimizer from `model.parameters()`, after any call that replaces them; or watch the model "
        "that it trains"
    )


def _steps_others(
    models: Sequence[torch.nn.Module],
    optimizer: Any,
    parameters: Sequence[torch.Tensor],
    stepped: Sequence[torch.Tensor],
) -> bool:
    """Whether no stepped parameter belongs to the models, or represents one of theirs."""
    its = {id(one) for one in stepped}
    if any(id(one) in its for one in parameters) or not _is_plain(optimizer, stepped):
        return False
    trained = [one for one in parameters if one.requires_grad]
    return _is_comparable(models, optimizer) and not _are_copies(trained or parameters, stepped)


def _is_plain(optimizer: Any, stepped: Sequence[torch.Tensor]) -> bool:
    """Whether the origin of this optimizer's parameters is known: others may step views, flat buffers or pieces of a
    model's."""
    import torch

    is_torchs = isinstance(optimizer, torch.optim.Optimizer)
    return is_torchs and all(type(one) is torch.nn.Parameter and one.is_leaf for one in stepped)


def stepped_by(optimizer: Any) -> list[torch.Tensor]:
    """The parameters in an optimizer's groups; none if it has no groups."""
    try:
        all_of_them = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        groups = [group for one in all_of_them for group in getattr(one, "param_groups", None) or ()]
        return [one for group in groups for one in group["params"]]
    except Exception:
        # It may be any object.
        return []


def _is_comparable(models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
    """Whether the optimizer's parameters are the modules' own objects: not if a framework shards them."""
    from trainmon.frameworks import recognise

    return recognise(models, optimizer).grad_is_whole


def _are_copies(parameters: Sequence[torch.Tensor], stepped: Sequence[torch.Tensor]) -> bool:
    """Whether the optimizer may step copies of a model's parameters: of higher precision, or in the host's memory."""
    dtypes, devices = {one.dtype for one in parameters}, {one.device.type for one in parameters}
    has_own_dtype = all(one.dtype not in dtypes for one in stepped)
    has_own_device = all(one.device.type not in devices for one in stepped)
    return has_own_dtype or has_own_device


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown}, …"


def _kind(one: Any) -> str:
    return type(one).__name__


def _has(one: Any, name: str) -> bool:
    """Whether it has the attribute, even if reading it fails."""
    try:
        return hasattr(one, name)
    except Exception:
        return True
