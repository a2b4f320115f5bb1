"""Captures: the inputs and outputs of a step's modules and operators, in the format of msprobe's `PrecisionDebugger`.

`debugger` and `capturing` have the interface, `session` begins and ends a step's capture. `mode`, `entry_points` and
`operators` handle functions, `modules` and `backward` modules, `collectives` communication between ranks, `optimizers`
an optimizer's calls.
"""

from __future__ import annotations
