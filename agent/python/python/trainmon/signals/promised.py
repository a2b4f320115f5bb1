"""Reports modules without the rows that the opening line announces."""

from __future__ import annotations

from collections.abc import Collection

import torch

from trainmon._trainmon import Monitor
from trainmon.common.names import listed
from trainmon.signals.sites import Site

#: The number of modules named for each reason.
_NAMED = 3


class PromisedRows:
    """Checks at the end of the first complete measured step, and at the end of the run."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        #: Whether the step that ends next was measured from its beginning.
        self._is_measured = monitor.collecting
        self._has_told = False

    def step_is_over(self, sites: Collection[Site], left_out: Collection[str]) -> None:
        """Reports after the first completely measured step. `left_out`: modules that were reported before."""
        was_measured, self._is_measured = self._is_measured, self._monitor.collecting
        if not self._has_told and was_measured and sites:
            self._has_told = True
            self._tell(sites, left_out, f"in step {self._monitor.step - 1}")

    def run_is_over(self, sites: Collection[Site], left_out: Collection[str]) -> None:
        """Reports modules without any rows."""
        if self._has_told:
            self._tell(sites, left_out, "in the whole run")

    def _tell(self, sites: Collection[Site], left_out: Collection[str], when: str) -> None:
        silent: dict[str, list[str]] = {}
        for site in sites:
            if not site.ids and site.name not in left_out and not _is_container(site.module):
                silent.setdefault(_why(site), []).append(site.name or type(site.module).__name__)
        if not silent:
            return
        reasons = [f"{why}: {listed(names, _NAMED)}" for why, names in silent.items()]
        count = sum(len(names) for names in silent.values())
        self._monitor.say(
            "info",
            f"{count} of {len(sites)} modules had no activations {when} ({'; '.join(reasons)})",
            "a module has rows if it is called in training mode with tensors as inputs or outputs",
        )


def _why(site: Site) -> str:
    if site.has_run:
        return "no tensors"
    return "not called" if site.module.training else "in eval mode"


def _is_container(module: torch.nn.Module) -> bool:
    """Whether it has no forward of its own, as `ModuleList`."""
    return getattr(type(module), "forward", None) is torch.nn.Module.forward
