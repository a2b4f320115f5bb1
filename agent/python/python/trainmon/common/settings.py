"""Reading a config, whichever way it is given."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmon._trainmon import USUAL_CONFIG, ConfigError, FeatureTargets, ParsedConfig, Settings, did_you_mean

__all__ = ["Config", "FeatureTargets", "Settings", "parse_config", "read_config"]

#: A config file, the text of one, or a config as a mapping; None is the default config.
Config = str | os.PathLike[str] | Mapping[str, Any] | None

#: With these keys a config has msprobe's second layout, to which the keys of the default config do not belong.
_SECOND_LAYOUT = ("monitors", "framework")


def read_config(file: str | os.PathLike[str]) -> str:
    """The text of a config file. Raises `ConfigError` if it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        name = os.fspath(file)
        shown = name if len(name) <= 200 else f"{name[:200]}…"
        raise ConfigError(f"cannot read the config file `{shown}`: {error}\nhint: {_instead_of(Path(name))}") from error


def is_on(variable: str) -> bool:
    """Whether an environment variable is set to anything but an empty text, `0` and `false`."""
    return os.environ.get(variable, "0").lower() not in ("", "0", "false")


def parse_config(
    config: Config,
    keys: Mapping[str, Any] | None = None,
    *,
    output_dir: str | os.PathLike[str] | None = None,
    like_msprobe: bool = False,
) -> ParsedConfig:
    """The config, with `keys` and `output_dir` replacing its own. Raises `ConfigError` if it cannot be read or is
    faulty.

    `like_msprobe`: configs that msprobe accepts although they make no sense cause a warning."""
    given = dict(keys or {})
    if output_dir is not None:
        given["output_dir"] = os.fspath(output_dir)
    text, name, is_path = _text_of(config, given)
    # The script and its config override the environment for the page.
    if "page" not in given and '"page"' not in text and is_on("TRAINMON_PAGE"):
        given["page"] = True
    over = _as_json(given, "keyword arguments") if given else None
    return ParsedConfig(text, file=name, is_path=is_path, over=over, like_msprobe=like_msprobe)


def _text_of(config: Config, keys: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The text, its name in messages, and whether that is a file's path."""
    if config is None:
        return "{}" if any(key in keys for key in _SECOND_LAYOUT) else USUAL_CONFIG, "default config", False
    if isinstance(config, Mapping):
        return _as_json(config, "config"), "config", False
    if isinstance(config, str) and _is_json(config):
        return config, "config", False
    if isinstance(config, str | os.PathLike):
        return read_config(config), os.fspath(config), True
    raise TypeError(
        f"config: expected a file, the JSON text of one, a dict or None, found {type(config).__name__}\n"
        'hint: config="monitor.json", or config={"wg_distribution": True}'
    )


def _is_json(text: str) -> bool:
    """Whether it is the text of a config and no path: it begins with a brace, or with a comment line."""
    start = text.lstrip("\ufeff \t\r\n")
    return start.startswith("{") or ("\n" in start and start.startswith(("//", "/*")))


def _as_json(config: Mapping[str, Any], name: str) -> str:
    try:
        return json.dumps(dict(config), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}\nhint: use values that JSON can represent") from error


def _plain(value: Any) -> Any:
    """Numbers of other libraries and paths, converted to plain values."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"JSON cannot represent a {type(value).__name__}")


def _instead_of(path: Path) -> str:
    """The hint for a path that cannot be read."""
    try:
        meant = did_you_mean(path.name, sorted(one.name for one in path.parent.iterdir()))
    except (OSError, ValueError):
        meant = None
    if meant is not None and meant != path.name:
        return f"did you mean `{path.with_name(meant)}`?"
    return "check the path, or pass a dict or JSON text; None is the default config"
