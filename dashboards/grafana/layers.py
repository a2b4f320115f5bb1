"""Layers: the part of the model with a fault."""

from __future__ import annotations

from grafana_foundation_sdk.builders import heatmap, statetimeline, timeseries

from grafana.board import Dashboard
from grafana.panels import Facts, Look, Query, curves, heat, states
from grafana.queries import LAYER, RANK, WHOLE_LAYER, in_order, largest

_MAGNITUDE = "In powers of ten: -3 is 0.001. The panel above shows NaN, infinity and zero, which have no colour."
#: States of a layer's norm that cannot be drawn, from the least to the worst.
_STATES = {1: ("zero", "blue"), 2: ("infinity", "orange"), 3: ("NaN", "red")}


def board() -> Dashboard:
    """The dashboard."""
    made = Dashboard("layers", "Layers", "One run, layer by layer over time: where in the model it began.")
    made.with_variables("run", "rank", "layer", "tensor")
    made.row("Layers with NaN, infinity or zero", _not_numbers())
    made.row("Layers over time", *_heat_maps())
    made.row("Over all ranks", *_over_all_ranks())
    made.row("Shares", *_shares())
    made.row("The layers chosen", *_curves())
    return made


def _not_numbers() -> statetimeline.Panel:
    """States that no heat map can draw: NaN and infinity have no colour, and zero has no logarithm."""
    norm = f"trainmon_layer_norm{{{LAYER}}}"
    # NaN is not even at most infinity. The worst state of a layer counts. Sets that are usually empty cost the least:
    # with 4,000 series half of a heat map's cost.
    state = (
        f"3 + 0 * count by (layer) ({norm} unless {norm} <= Inf)"
        f" or 2 + 0 * count by (layer) ({norm} == Inf)"
        f" or 1 + max by (layer) ({norm} == 0)"
    )
    facts = Facts(
        "Layers whose norm is no number, or zero",
        "trainmon_layer_norm",
        "TrainingNonFinite",
        "Only layers with such a norm in the time range. The heat maps below have no colour for it.",
        "none",
        width=24,
    )
    query = Query(in_order(state), "{{layer}}")
    return states(facts, query, _STATES, "Every norm is a number above 0")


def _heat_maps() -> list[heatmap.Panel]:
    def magnitudes(title: str, name: str, runbook: str) -> heatmap.Panel:
        facts = Facts(title, name, runbook, _MAGNITUDE, "none", height=12)
        return heat(facts, Query(in_order(f"log10(max by (layer) ({name}{{{LAYER}}} > 0))"), "{{layer}}"))

    zero = Facts("Share of zeros", "trainmon_zero_elements_ratio", "DeadLayer", height=12)
    mean = Facts("Mean element", "trainmon_layer_mean", "TrainingDrift", height=12)
    return [
        magnitudes("Norm", "trainmon_layer_norm", "GradNormSpike"),
        magnitudes("Largest magnitude", "trainmon_layer_abs_max", "TrainingNonFinite"),
        heat(zero, Query(in_order(f"max by (layer) (trainmon_zero_elements_ratio{{{LAYER}}})"), "{{layer}}")),
        heat(mean, Query(in_order(f"avg by (layer) (trainmon_layer_mean{{{LAYER}}})"), "{{layer}}")),
    ]


def _over_all_ranks() -> list[timeseries.Panel]:
    note = "Over all ranks, combined by a recording rule while all of them report."
    by_layer = "{{layer}} {{group}}"

    def whole(title: str, name: str, runbook: str, *, logarithmic: bool = False) -> timeseries.Panel:
        asked = f"max by (layer, group) (run:{name}:whole{{{WHOLE_LAYER}}})"
        return curves(Facts(title, name, runbook, note), Query(asked, by_layer), look=Look(logarithmic=logarithmic))

    parts = Facts(
        "Norm of each rank's part",
        "trainmon_layer_part_norm",
        "GradNormSpike",
        "The twenty largest. Empty if every rank holds everything.",
    )
    part = f"max by (layer, group, rank) (trainmon_layer_part_norm{{{LAYER}}})"
    return [
        whole("Norm of the whole layer", "trainmon_layer_norm", "GradNormSpike", logarithmic=True),
        curves(parts, Query(largest(part), "{{layer}} {{group}} {{rank}}"), look=Look(logarithmic=True)),
        whole("Mean of the whole layer", "trainmon_layer_mean", "TrainingDrift"),
        whole("Zeros of the whole layer", "trainmon_zero_elements_ratio", "DeadLayer"),
    ]


def _shares() -> list[timeseries.Panel]:
    share = Facts("Share of the gradient norm by group", "trainmon_group_grad_norm_share", "GradNormDrift")
    top = Facts("Largest gradient norms", "trainmon_top_grad_norm", "GradNormSpike")
    return [
        curves(
            share,
            Query(f"avg by (group) (trainmon_group_grad_norm_share{{{RANK}}})", "{{group}}"),
            look=Look(stacked=True, bounds=(0, 1)),
        ),
        curves(
            top,
            Query(f"max by (slot) (trainmon_top_grad_norm{{{RANK}}})", "slot {{slot}}"),
            look=Look(logarithmic=True),
        ),
    ]


def _curves() -> list[timeseries.Panel]:
    parameters = Facts(
        "Largest tensors", "trainmon_parameter_norm", "GradNormSpike", "Requires `prometheus.per_parameter`."
    )
    parameter = 'run=~"$run",rank=~"$rank",tensor=~"$tensor"'
    return [
        curves(
            Facts("Norm by layer and group", "trainmon_layer_norm", "GradNormSpike"),
            Query(f"max by (layer, group) (trainmon_layer_norm{{{LAYER}}})", "{{layer}} {{group}}"),
            look=Look(logarithmic=True),
        ),
        curves(
            Facts("Before and after reduction", "trainmon_layer_norm", "GradNormMismatch", "Gradients only."),
            Query(
                "sqrt(sum by (scope) (max by (layer, group, scope)"
                ' (trainmon_layer_norm{run=~"$run",rank=~"$rank",layer=~"$layer",tensor="grad"}) ^ 2))',
                "{{scope}}",
            ),
            look=Look(logarithmic=True),
        ),
        curves(
            parameters,
            Query(f"topk(10, max by (name) (trainmon_parameter_norm{{{parameter}}}))", "{{name}}"),
            look=Look(logarithmic=True),
        ),
    ]
