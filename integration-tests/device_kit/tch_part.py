"""The front for tch: its demo is linked with libtorch, which is not carried where it does not fit."""

from __future__ import annotations

from device_kit.driver import facts_of_kit
from device_kit.report import Report
from device_kit.setting import Setting

TITLES = ("demo of the tch front",)


def run(_setting: Setting, report: Report) -> None:
    """Says why it is not here."""
    why = facts_of_kit().get("tch", "this is no kit but a checkout, whose own tests run the demo")
    report.skipped(TITLES[0], f"not carried: {why}")
