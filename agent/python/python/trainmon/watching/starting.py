"""How a watch begins: `watch`, and the monitor it measures with."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainmon._trainmon import Monitor, ParsedConfig
from trainmon.common.notices import say
from trainmon.common.settings import Config, parse_config
from trainmon.frameworks import arguments
from trainmon.frameworks.live_watches import LiveWatch, live_watch
from trainmon.ranks.rank_store import torch_rank_store
from trainmon.watching.watch import Watch

if TYPE_CHECKING:
    import torch


def start_monitor(
    config: Config | ParsedConfig = None,
    *,
    keys: Mapping[str, Any] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    like_msprobe: bool = False,
    **options: Any,
) -> Monitor:
    """A monitor for a config, whichever way it is given, with `keys` and `output_dir` in the place of its own; one that
    was read already has them.
    `like_msprobe`: files are laid out as msprobe's, and what it takes is taken. `options` are those of `Monitor.start`.
    Raises `ConfigError` if the config is faulty, `ValueError` for a name that no run can have."""
    if like_msprobe:
        options.setdefault("layout", "msprobe")
    parsed = (
        config
        if isinstance(config, ParsedConfig)
        else parse_config(config, keys, output_dir=output_dir, like_msprobe=like_msprobe)
    )
    return Monitor.start(parsed, rank_store=torch_rank_store(parsed), **options)


def start_or_say(file: str, **options: Any) -> Monitor | None:
    """`start_monitor` for scripts that were written for msprobe: what cannot start is said, and the training goes on.
    Raises `ConfigError` if the config is faulty."""
    try:
        return start_monitor(file, like_msprobe=True, **options)
    except RuntimeError as error:
        say(f"{error}: nothing is measured; training goes on")
        return None


def watch(
    model: torch.nn.Module | Sequence[torch.nn.Module],
    optimizer: Any,
    *,
    config: Config = None,
    name: str | None = None,
    quiet: bool = False,
    page: bool | None = None,
    grad_acc_steps: int = 1,
    start_iteration: int = 0,
    output_dir: str | os.PathLike[str] | None = None,
    tp_group: Any = None,
    dp_group: Any = None,
    pp_group: Any = None,
    **keys: Any,
) -> Watch:
    """Watches a training.

        with trainmon.watch(model, optimizer):
            train()

    `model`: a module, or a list of model chunks (virtual pipeline stages). `optimizer`: what steps its parameters; a
    list of torch's optimizers where several make a step together (one per parameter, in the backward pass); None where
    `step` of the watch tells the end of a step. `config`: a file, the JSON text of one, or a dict; without it
    gradients, moments and parameters are measured (min, max, mean, norm, nans) and written to CSV files. `keys`: keys
    of the config that take the place of its own (`ops=["norm"]`). `name`: the run's. `output_dir` takes the place of
    the config's. `quiet`: says warnings only, as `TRAINMON_QUIET=1` in the environment does. `page`: the live page,
    whose address the start prints; `True` opens a port on this machine, as `TRAINMON_PAGE=1` in the environment
    does. Without either, and without a config that asks for it, no port is opened.
    `grad_acc_steps`: backward passes per optimizer step. `tp_group`, `dp_group`, `pp_group`: the process groups of
    tensor, data and pipeline parallelism where a loop is parallel by its own means. What DDP, FSDP, DTensors, torch's
    pipelines, Megatron and DeepSpeed do needs none of them.

    Raises `ConfigError` for a faulty config, `TypeError` and `ValueError` for arguments that are not these, such as the
    optimizer of another model, and `RuntimeError` for process groups before torch.distributed is initialised and where
    the environment (`RANK`, `WORLD_SIZE`) leaves open which rank this is; never afterwards. A watch that the same model
    and optimizer still have is closed, and that is said. Cost: a walk over the modules and parameters; no tensor is
    read.
    """
    arguments.check_keys("watch", keys, _OWN)
    arguments.check(model, optimizer)
    grad_acc_steps = arguments.check_number("grad_acc_steps", grad_acc_steps, 1)
    start_iteration = arguments.check_number("start_iteration", start_iteration, 0)
    arguments.check_groups(tp_group=tp_group, dp_group=dp_group, pp_group=pp_group)
    # Before anything is closed for it.
    arguments.check_name(name)
    asked = keys if page is None else {**keys, "page": page}
    parsed = parse_config(config, asked, output_dir=output_dir)
    earlier = live_watch(model, optimizer, is_covered=True)
    if earlier is not None:
        # First, for what both need, such as a port.
        earlier.close()
    monitor = start_monitor(parsed, start_iteration=start_iteration, run=name, quiet=quiet)
    if earlier is not None:
        monitor.say(
            "warning",
            f"this model and optimizer are watched already: that watch is closed{_place_of(earlier)}, this one goes on",
            "call `watch` once for a model and its optimizer, or `close()` the watch before the next",
        )
    is_usual = config is None and not keys
    options = {"grad_acc_steps": grad_acc_steps, "tp_group": tp_group, "dp_group": dp_group, "pp_group": pp_group}
    return Watch(model, optimizer, monitor, is_usual=is_usual, **options)


def _place_of(earlier: LiveWatch) -> str:
    places = dict(earlier.monitor.whereabouts()).get("csv")
    return f" (its files: {places[0]})" if places else ""


#: The arguments that are no keys of a config.
_OWN = [name for name, one in inspect.signature(watch).parameters.items() if one.kind is not one.VAR_KEYWORD]
