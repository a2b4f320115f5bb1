"""The parts of the kit, in their order: first what the others rest on, last what may take long."""

from __future__ import annotations

from device_kit.part import Part

PARTS = (
    Part("import", "device_kit.importing", 45),
    Part("values", "device_kit.values", 60),
    Part("training", "device_kit.training", 60),
    Part("streams", "device_kit.streams", 40),
    Part("floor", "device_kit.floor", 60),
    Part("steps", "device_kit.steps", 110),
    Part("captures", "device_kit.captures", 80),
    Part("collectives", "device_kit.collectives", 45),
    Part("graphs", "device_kit.graphs", 40),
    Part("compile", "device_kit.compiling", 75),
    Part("tch", "device_kit.tch_part", 20),
)
