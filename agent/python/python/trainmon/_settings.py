"""The effective config, as the front reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmon._trainmon import ConfigError, Monitor

#: A config file, or a config as a mapping.
Config = str | os.PathLike[str] | Mapping[str, Any]


def read_config(file: str | os.PathLike[str]) -> str:
    """The text of a config file. Raises `ConfigError` if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file `{os.fspath(file)}`: {error}\nhint: check the path") from error


@dataclass(frozen=True, slots=True)
class Features:
    """Which modules give which level-2 feature: None for none, an empty list as msprobe reads it."""

    attention: list[str] | None = None
    linear: list[str] | None = None
    router_weight: list[str] | None = None
    router_logit: list[str] | None = None
    order: str = "s,b,h,d"


@dataclass(frozen=True, slots=True)
class Settings:
    """What hooks have to know of the config."""

    is_v2: bool
    start_step: int
    step_interval: int
    squash_name: bool
    like_msprobe: bool
    """Whether names are msprobe's, with wrappers' `module.` in them (see `trainmon.names`)."""
    has_targets: bool
    every_micro_batch: bool
    micro_batches: int | None
    forward: bool
    backward: bool
    print_struct: bool
    stack_info: bool
    is_live: bool
    """Whether what is measured may change while the training runs."""
    patch_optimizer_step: bool
    features: Features | None
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, monitor: Monitor, *, like_msprobe: bool = False) -> Settings:
        """Reads them from a monitor. `like_msprobe`: whether msprobe's import is used; its V2 layout has its names
        too."""
        raw: dict[str, Any] = json.loads(monitor.settings())
        weight_grad = raw.get("weight_grad") or {}
        activations = raw.get("activations") or {}
        features = raw.get("features")
        return cls(
            is_v2=raw["dialect"] == "v2",
            start_step=raw["window"]["start_step"],
            step_interval=raw["window"]["step_interval"],
            squash_name=raw["squash_name"],
            like_msprobe=like_msprobe or raw["dialect"] == "v2",
            has_targets=bool(raw["targets"]["names"]) and raw["targets"]["rule"] == "prefix",
            every_micro_batch=bool(weight_grad.get("every_micro_batch")),
            micro_batches=weight_grad.get("micro_batches"),
            forward=bool(activations.get("forward")),
            backward=bool(activations.get("backward")),
            print_struct=bool(raw.get("print_struct")),
            stack_info=bool(raw.get("stack_info")),
            is_live=raw.get("control") is not None or raw.get("dynamic_on") is not None,
            patch_optimizer_step=raw.get("patch_optimizer_step", True) is not False,
            features=None if features is None else Features(**features),
            raw=raw,
        )
