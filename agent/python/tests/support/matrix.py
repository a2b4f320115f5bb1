"""The frameworks' larger matrix: what repeats a smaller test at a size or in a combination that CI does without."""

from __future__ import annotations

import os

import pytest

#: `TRAINMON_TEST_MATRIX=full` runs it.
IS_FULL = os.environ.get("TRAINMON_TEST_MATRIX") == "full"


def full_matrix_only(why: str) -> pytest.MarkDecorator:
    """Skips a test unless the whole matrix is asked for; `why`: what makes it heavy, and what stands for it in CI."""
    return pytest.mark.skipif(not IS_FULL, reason=f"{why}; TRAINMON_TEST_MATRIX=full runs it")
