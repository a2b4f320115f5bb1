"""Captures: the inputs and outputs of a step's modules and operators, in the format of msprobe's `PrecisionDebugger`.

`debugger` and `capture_block` have the interface. `session` begins and ends the capture of a step. `mode`,
`function_code` and `operators` handle functions, `modules` handles modules, `collectives` communication, and
`optimizers` an optimizer's calls.
"""

from __future__ import annotations
