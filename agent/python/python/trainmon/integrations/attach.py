"""Code shared by the callbacks and `python -m trainmon run`: attaching without ever stopping the training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from trainmon.common.notices import say
from trainmon.common.settings import Config, parse_config
from trainmon.frameworks.arguments import check_keys, check_name

if TYPE_CHECKING:
    from trainmon.watches.watch import Watch

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """The options of a watch that begins later: those of `trainmon.watch`."""

    config: Config = None
    output_dir: str | os.PathLike[str] | None = None
    name: str | None = None
    quiet: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_usual(self) -> bool:
        """Whether everything has its default."""
        return self.config is None and not self.keys


def checked(attach_options: AttachOptions, function: str) -> AttachOptions:
    """The options, if they are valid. Raises `ConfigError` for a faulty config, `TypeError` for an unknown key and
    `ValueError` for a name that no run can have: at once, not when the training begins. `function`: the called
    function, for messages."""
    check_keys(function, attach_options.keys, ("config", "output_dir", "name", "quiet"))
    check_name(attach_options.name)
    parse_config(attach_options.config, attach_options.keys, output_dir=attach_options.output_dir)
    return attach_options


class ConfiguredCallback:
    """The constructor of the callbacks, for all frameworks."""

    def __init__(
        self,
        config: Config = None,
        output_dir: str | None = None,
        *,
        name: str | None = None,
        quiet: bool = False,
        **keys: Any,
    ) -> None:
        """The arguments are those of `trainmon.watch`. Raises `ConfigError` for a faulty config, `TypeError` for an
        unknown key, `ValueError` for an invalid run name; nothing afterwards."""
        super().__init__()
        self._attach_options = checked(AttachOptions(config, output_dir, name, quiet, keys), "TrainmonCallback")
        self._reset()

    def _reset(self) -> None:
        """Restores the state before a training begins."""


def attach(
    model: Any, optimizer: Any, attach_options: AttachOptions, *, start_iteration: int = 0, **options: Any
) -> Watch | None:
    """A watch for a training that has begun; None, with a warning, if it fails."""
    # It requires torch, whose import may have to wait for settings of the script.
    from trainmon.watches.startup import start_monitor
    from trainmon.watches.watch import Watch

    monitor = None
    try:
        monitor = start_monitor(
            attach_options.config,
            keys=attach_options.keys,
            start_iteration=start_iteration,
            output_dir=attach_options.output_dir,
            run=attach_options.name,
            quiet=attach_options.quiet,
        )
        return Watch(model, optimizer, monitor, is_usual=attach_options.is_usual, **options)
    except Exception as error:
        say(f"nothing is measured; training continues: {type(error).__name__}: {error}")
        if monitor is not None:
            monitor.shutdown()
        return None


def safely(what: str, body: Callable[[], R]) -> R | None:
    """The result of `body`; None, with a warning, if it fails. For code outside any watch's guard."""
    try:
        return body()
    except Exception as error:
        say(f"{what} failed; training continues: {type(error).__name__}: {error}")
        return None
