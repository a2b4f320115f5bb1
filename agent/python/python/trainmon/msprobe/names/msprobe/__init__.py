"""msprobe's names with trainmon behind them. Only a user puts them on the path: `trainmon.as_msprobe`."""

from __future__ import annotations

from trainmon.as_msprobe import ensure_not_installed

ensure_not_installed()
