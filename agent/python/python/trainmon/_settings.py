"""Reading a config, whichever way it is given."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmon._trainmon import ConfigError, FeatureTargets, ParsedConfig, Settings

__all__ = ["Config", "FeatureTargets", "Settings", "parse_config", "read_config"]

#: A config file, or a config as a mapping.
Config = str | os.PathLike[str] | Mapping[str, Any]


def read_config(file: str | os.PathLike[str]) -> str:
    """The text of a config file. Raises `ConfigError` if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file `{os.fspath(file)}`: {error}\nhint: check the path") from error


def parse_config(config: Config) -> ParsedConfig:
    """The config of a file or a mapping. Raises `ConfigError` if it cannot be read or is faulty."""
    if isinstance(config, Mapping):
        return ParsedConfig(json.dumps(dict(config)))
    return ParsedConfig(read_config(config), file=os.fspath(config))
