"""What the callbacks and `python -m trainmon run` share: attaching without ever stopping the training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trainmon._settings import Config, parse_config

if TYPE_CHECKING:
    from trainmon.watching import Watch

R = TypeVar("R")


def checked(config: Config) -> Config:
    """The config, if it is not faulty. Raises `ConfigError`: at once, not when the training begins."""
    parse_config(config)
    return config


def attach(
    model: Any,
    optimizer: Any,
    config: Config,
    *,
    start_iteration: int = 0,
    output_dir: str | None = None,
    **options: Any,
) -> Watch | None:
    """A watch over a training that has begun; None, and a line on standard error, if it cannot be had."""
    # It needs torch, whose import may have to wait for what the script sets first.
    from trainmon.watching import Watch, start_monitor

    monitor = None
    try:
        monitor = start_monitor(config, start_iteration=start_iteration, output_dir=output_dir)
        return Watch(model, optimizer, monitor, **options)
    except Exception as error:
        say(f"nothing is measured; training goes on: {type(error).__name__}: {error}")
        if monitor is not None:
            monitor.shutdown()
        return None


def safely(what: str, body: Callable[[], R]) -> R | None:
    """What `body` gives; None, and a line on standard error, when it fails. For what no watch guards."""
    try:
        return body()
    except Exception as error:
        say(f"{what} failed; training goes on: {type(error).__name__}: {error}")
        return None


def say(message: str, hint: str | None = None) -> None:
    """A line on standard error, where there is no monitor to say it."""
    lines = [f"trainmon: warning: {message}", *([] if hint is None else [f"  hint: {hint}"])]
    try:
        sys.stderr.write("\n".join(lines) + "\n")
    except (OSError, ValueError):
        # Nobody reads it any more.
        return
