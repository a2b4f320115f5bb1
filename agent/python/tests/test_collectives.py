"""What ranks send each other: every operation is seen, as torch's dispatcher sees it, and changes nothing."""

from __future__ import annotations

from pathlib import Path

from support.ranks import run_ranks


def test_what_is_recorded_is_what_the_dispatcher_saw(tmp_path: Path) -> None:
    cases = ["plain", "ddp", "fsdp2"]
    said = run_ranks("communication.py", 2, tmp_path, *cases)
    assert said.count("checked") == len(cases), said
