"""The start of a watch: `watch`, and its monitor."""

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
from trainmon.watches.watch import Watch

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
    """A monitor for a config in any form, with `keys` and `output_dir` replacing its own; a parsed config has them
    already. `like_msprobe`: uses msprobe's layout of files and accepts its configs. `options` are those of
    `Monitor.start`. Raises `ConfigError` for a faulty config, `ValueError` for an invalid run name."""
    if like_msprobe:
        options.setdefault("layout", "msprobe")
    parsed = (
        config
        if isinstance(config, ParsedConfig)
        else parse_config(config, keys, output_dir=output_dir, like_msprobe=like_msprobe)
    )
    return Monitor.start(parsed, rank_store=torch_rank_store(parsed), **options)


def start_or_say(file: str, **options: Any) -> Monitor | None:
    """`start_monitor` for scripts that were written for msprobe: if it cannot start, it warns and the training
    continues. Raises `ConfigError` for a faulty config."""
    try:
        return start_monitor(file, like_msprobe=True, **options)
    except RuntimeError as error:
        say(f"{error}: nothing is measured; training continues")
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

    `model`: a module, or a list of model chunks (virtual pipeline stages). `optimizer`: the optimizer of its
    parameters; a list of torch optimizers that step together (one per parameter, in the backward pass); or None if you
    call `Watch.step`. `config`: a file, the JSON text of one, or a dict; by default gradients, moments and parameters
    are measured (min, max, mean, norm, nans) and written to CSV files. `keys`: keys that override the config's
    (`ops=["norm"]`). `name`: the run's name. `output_dir`: overrides the config's. `quiet`: prints warnings only, like
    `TRAINMON_QUIET=1`. `page`: serves the live page on a port of this machine and prints its address, like
    `TRAINMON_PAGE=1`; off by default. `grad_acc_steps`: backward passes per optimizer step. `tp_group`, `dp_group`,
    `pp_group`: the process groups of tensor, data and pipeline parallelism, for loops that implement these themselves.
    DDP, FSDP, DTensors, torch's pipelines, Megatron and DeepSpeed require none of them.

    Raises `ConfigError` for a faulty config, and `TypeError` or `ValueError` for invalid arguments, such as another
    model's optimizer. Raises `RuntimeError` for process groups before torch.distributed is initialised, and if the
    environment (`RANK`, `WORLD_SIZE`) does not determine the rank. After the call nothing is raised. An open watch of
    the same model and optimizer is closed with a warning. Cost: a walk over the modules and parameters; no tensor is
    read.
    """
    arguments.check_keys("watch", keys, _OWN)
    arguments.check(model, optimizer)
    grad_acc_steps = arguments.check_number("grad_acc_steps", grad_acc_steps, 1)
    start_iteration = arguments.check_number("start_iteration", start_iteration, 0)
    arguments.check_groups(tp_group=tp_group, dp_group=dp_group, pp_group=pp_group)
    # Before an earlier watch is closed for it.
    arguments.check_name(name)
    asked = keys if page is None else {**keys, "page": page}
    parsed = parse_config(config, asked, output_dir=output_dir)
    earlier = live_watch(model, optimizer, is_covered=True)
    if earlier is not None:
        # First, because both may require the same resource, such as a port.
        earlier.close()
    monitor = start_monitor(parsed, start_iteration=start_iteration, run=name, quiet=quiet)
    if earlier is not None:
        monitor.say(
            "warning",
            f"this model and optimizer are watched already: closed the earlier watch{_place_of(earlier)}",
            "call `watch` once for a model and its optimizer, or `close()` the watch before the next",
        )
    is_usual = config is None and not keys
    options = {"grad_acc_steps": grad_acc_steps, "tp_group": tp_group, "dp_group": dp_group, "pp_group": pp_group}
    return Watch(model, optimizer, monitor, is_usual=is_usual, **options)


def _place_of(earlier: LiveWatch) -> str:
    places = dict(earlier.monitor.locations()).get("csv")
    return f" (its files: {places[0]})" if places else ""


#: The arguments that are no keys of a config.
_OWN = [name for name, one in inspect.signature(watch).parameters.items() if one.kind is not one.VAR_KEYWORD]
