"""What `watch` was given: wrong use is told at once, before anything is measured.

Frameworks wrap models and optimizers in many ways: what is not known to be wrong is accepted.
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

#: So many parameters are named in a message.
_MOST_NAMED = 3


def check_keys(function: str, keys: Iterable[str], own: Iterable[str]) -> None:
    """Raises `TypeError` for a keyword that is no key of a config file. `own`: the other arguments of the function."""
    for key in keys:
        if key not in CONFIG_KEYS:
            meant = did_you_mean(key, [*own, *CONFIG_KEYS])
            raise TypeError(
                f"{function}: unknown argument `{key}`" + ("" if meant is None else f"; did you mean `{meant}`?") + "\n"
                "hint: besides its own arguments it takes the keys of a config file (docs/configuration.md)"
            )


def check_name(name: Any) -> None:
    """Raises `TypeError` or `ValueError` for a name that no run can have. None is the name that nobody gave."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"name: expected a text or None, found {_kind(name)}\nhint: name=str(...)")
    check_run_name(name)


def check(model: Any, optimizer: Any) -> None:
    """Raises `TypeError` for what is no model and no optimizer, `ValueError` for an optimizer of another model."""
    check_model(model, optimizer)
    check_optimizer(optimizer)
    check_belongs(models_of(model), optimizer)


def warn_of_misuse(monitor: Monitor, model: Any, optimizer: Any) -> bool:
    """As `check`, for scripts that were written for msprobe: what is wrong is said, and the training goes on. False if
    the model is none: the monitor is shut down then, for it has nothing to measure."""
    try:
        check_model(model, optimizer)
    except (TypeError, ValueError) as error:
        message, hint = _split(error)
        monitor.say("warning", f"{message}: nothing is measured; training goes on", hint)
        monitor.shutdown()
        return False
    try:
        check_optimizer(optimizer)
        check_belongs(models_of(model), optimizer)
    except (TypeError, ValueError) as error:
        monitor.say("warning", *_split(error))
    return True


def usable_group(monitor: Monitor, name: str, group: Any) -> Any:
    """The group; None, with a warning, where it is none."""
    try:
        check_groups(**{name: group})
    except (TypeError, RuntimeError) as error:
        message, hint = _split(error)
        monitor.say("warning", f"{message}: it is left out", hint)
        return None
    return group


def _split(error: Exception) -> tuple[str, str | None]:
    message, _, hint = str(error).partition("\nhint: ")
    return message, hint or None


def check_number(name: str, value: Any, least: int) -> int:
    """The count as a plain integer. Raises `TypeError` or `ValueError` for what is none."""
    count = integer_of(value)
    if count is None:
        raise TypeError(f"{name}: expected an integer of at least {least}, found {value!r}")
    if count < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, found {count}")
    return count


def integer_of(value: Any) -> int | None:
    """A plain integer for whatever is one, such as numpy's; None for what is none. A truth value counts as none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except Exception:
        # What has an `__index__` may fail in any way.
        return None


def check_groups(**groups: Any) -> None:
    """Raises `TypeError` for what is no process group, `RuntimeError` where there can be none yet."""
    for name, group in groups.items():
        if group is None:
            continue
        if world_rank() is None:
            raise RuntimeError(
                f"{name}: torch.distributed is not initialised\nhint: call `watch` after it, or leave it out"
            )
        if isinstance(group, list | tuple | dict | str):
            raise TypeError(
                f"{name}: expected a process group, found {_kind(group)}\n"
                "hint: give what `torch.distributed.new_group` gives"
            )
        if callable(getattr(group, "get_group", None)):
            raise TypeError(f"{name}: expected a process group, found {_kind(group)}\nhint: give `mesh.get_group()`")


def models_of(model: Any) -> list[Any]:
    """The model, or its chunks, as a list."""
    return list(model) if isinstance(model, list | tuple) else [model]


def parameters_of(models: Iterable[torch.nn.Module]) -> Iterator[torch.Tensor]:
    """The parameters of all of them."""
    return (one for model in models for one in model.parameters())


def check_model(model: Any, optimizer: Any = None) -> None:
    """Raises `TypeError` for what is no module and no list of them."""
    import torch

    models = models_of(model)
    if not models:
        raise ValueError("model: expected a torch.nn.Module or a list of them, found an empty list")
    for one in models:
        if isinstance(one, torch.nn.Module):
            continue
        if _has(one, "param_groups") and isinstance(optimizer, torch.nn.Module):
            raise TypeError(
                f"model and optimizer have changed places: expected `watch(model, optimizer)`, found "
                f"`watch({_kind(one)}, {_kind(optimizer)})`"
            )
        hint = f"\nhint: {wanted}" if (wanted := _module_in(one)) else ""
        raise TypeError(f"model: expected a torch.nn.Module or a list of them, found {_kind(one)}{hint}")


def _module_in(one: Any) -> str | None:
    """How to get at the module, of what often stands for one."""
    if isinstance(one, Mapping):
        return "give `list(models.values())`"
    if isinstance(one, Iterator):
        return "give the module itself, not an iterator over its parts"
    for name in ("module", "model"):
        if _has(one, name):
            return f"give its `{name}`"
    return None


def check_optimizer(optimizer: Any) -> None:
    """Raises `TypeError` for what steps no parameters. None, and whatever has groups of parameters or a step of its
    own, is one."""
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
        raise TypeError(f"{expected}\nhint: give {inside}")
    import torch

    if isinstance(optimizer, torch.nn.Module):
        raise TypeError(f"{expected}\nhint: `watch(model, optimizer)`; several models are given as a list")
    if any(one.__name__.endswith("GradScaler") for one in type(optimizer).__mro__):
        raise TypeError(f"{expected}\nhint: give the optimizer that it steps; the scaler is found by itself")
    if not _has(optimizer, "step"):
        raise TypeError(f"{expected}\nhint: give the object whose `step()` changes the parameters, or None")


def _check_several(optimizers: Sequence[Any]) -> None:
    """Raises `TypeError` unless all are torch's optimizers, each there once."""
    if not optimizers:
        raise TypeError("optimizer: expected one or several, found an empty list")
    if len({id(one) for one in optimizers}) < len(optimizers):
        raise TypeError("optimizer: the same one stands twice in the list\nhint: give each once")
    for one in optimizers:
        check_optimizer(one)
        if not hasattr(one, "register_step_pre_hook"):
            raise TypeError(
                f"optimizer: several are watched together if they are torch's, found {_kind(one)}\n"
                "hint: call `watch` once for each, with an output_dir of its own"
            )


def _is_scheduler(one: Any) -> bool:
    if _has(one, "zero_grad"):
        # An optimizer that sets its own learning rate.
        return False
    is_named_so = any(kind.__name__.endswith("Scheduler") for kind in type(one).__mro__)
    return is_named_so or type(one).__name__ == "ReduceLROnPlateau" or _has(one, "get_last_lr") or _has(one, "get_lr")


def check_belongs(models: Sequence[torch.nn.Module], optimizer: Any) -> None:
    """Raises `ValueError` if one of torch's optimizers steps parameters, and none of them is the models'."""
    stepped = stepped_by(optimizer)
    try:
        named = [(name, one) for model in models for name, one in model.named_parameters()]
        is_strange = bool(stepped and named) and _steps_others(models, optimizer, [one for _, one in named], stepped)
    except Exception:
        # What cannot be found out is not known to be wrong.
        return
    if not is_strange:
        return
    shapes = _some([str(tuple(one.shape)) for one in stepped])
    kinds = ", ".join(_kind(model) for model in models)
    raise ValueError(
        f"optimizer: none of the parameters that this {_kind(optimizer)} steps ({len(stepped)}: {shapes}) belongs to "
        f"the model, {kinds} ({len(named)}: {_some([name for name, _ in named])})\n"
        "hint: make the optimizer of `model.parameters()`, after what puts others in their place; or watch the model "
        "that it trains"
    )


def _steps_others(
    models: Sequence[torch.nn.Module],
    optimizer: Any,
    parameters: Sequence[torch.Tensor],
    stepped: Sequence[torch.Tensor],
) -> bool:
    """Whether nothing that is stepped is a parameter, or stands for one."""
    its = {id(one) for one in stepped}
    if any(id(one) in its for one in parameters) or not _is_plain(optimizer, stepped):
        return False
    trained = [one for one in parameters if one.requires_grad]
    return _is_comparable(models, optimizer) and not _are_copies(trained or parameters, stepped)


def _is_plain(optimizer: Any, stepped: Sequence[torch.Tensor]) -> bool:
    """Whether it is known how this optimizer's parameters come to be: others may step views, flat buffers or pieces of
    a model's."""
    import torch

    is_torchs = isinstance(optimizer, torch.optim.Optimizer)
    return is_torchs and all(type(one) is torch.nn.Parameter and one.is_leaf for one in stepped)


def stepped_by(optimizer: Any) -> list[torch.Tensor]:
    """The parameters in an optimizer's groups; none where it shows none."""
    try:
        all_of_them = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        groups = [group for one in all_of_them for group in getattr(one, "param_groups", None) or ()]
        return [one for group in groups for one in group["params"]]
    except Exception:
        # It may be anything.
        return []


def _is_comparable(models: Sequence[torch.nn.Module], optimizer: Any) -> bool:
    """Whether the optimizer's parameters are those of the modules by identity: not where a framework shards them."""
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
    """Whether it has the attribute; also where that cannot be had now."""
    try:
        return hasattr(one, name)
    except Exception:
        return True
