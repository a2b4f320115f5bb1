"""trainmon under msprobe's names. On the path only if the user puts it there: `trainmon.as_msprobe`."""

from __future__ import annotations

from trainmon.as_msprobe import ensure_not_installed

ensure_not_installed()
