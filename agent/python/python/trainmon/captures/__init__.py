"""Captures: what a step's modules and operators take in and give out, as msprobe's `PrecisionDebugger` writes it.

`debugger` and `capturing` have the interface, `session` begins and ends a step's capture. `mode`, `entry_points` and
`operators` see functions, `modules` and `backward` modules, `collectives` what ranks send each other, `optimizers` what
an optimizer calls.
"""

from __future__ import annotations
