"""Shared parts of expressions."""

from __future__ import annotations

RUN = 'run=~"$run"'
RANK = 'run=~"$run",rank=~"$rank"'
LAYER = 'run=~"$run",rank=~"$rank",layer=~"$layer",tensor=~"$tensor"'
#: The selector of series recorded over all ranks.
WHOLE_LAYER = 'run=~"$run",layer=~"$layer",tensor=~"$tensor"'


def quantile(share: float, metric: str, selector: str, *by: str) -> str:
    """A quantile of a histogram over the interval of a point."""
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))"


def rate(metric: str, selector: str) -> str:
    """The growth of a counter per second."""
    return f"rate({metric}{{{selector}}}[$__rate_interval])"


def increase(metric: str, selector: str) -> str:
    """The growth of a counter from one point to the next."""
    return f"increase({metric}{{{selector}}}[$__rate_interval])"


def largest(expression: str) -> str:
    """The twenty largest: a job has thousands of ranks, and no panel has room for a curve of each."""
    return f"topk(20, {expression})"


def per_run(recorded: str) -> str:
    """A recorded metric, one series for each run: without `max by` it would keep its name, by which tables distinguish
    rows."""
    return f"max by (run) ({recorded}{{{RUN}}})"


def firing(severity: str) -> str:
    """The firing alerts of one severity in Prometheus."""
    return f'ALERTS{{alertstate="firing",severity="{severity}",{RUN}}}'


def in_order(expression: str) -> str:
    """Layers in numeric order: Prometheus sorts by letters. A layer's name ends in its number, which gets four digits,
    so that `layers.0007` comes before `layers.0010` and `layers.0100`."""
    zeros = f'label_replace({expression}, "layer", "${{1}}000$2", "layer", "(.*[.:])?([0-9]+)")'
    return f'label_replace({zeros}, "layer", "$1$2", "layer", "(.*[.:])?0{{0,3}}([0-9]{{4,}})")'
