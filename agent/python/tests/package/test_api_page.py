"""docs/api.md says what the docstrings say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import api_page

API = Path(__file__).resolve().parents[4] / "docs" / "api.md"


def test_the_api_page_is_made_of_the_docstrings() -> None:
    for library in ("transformers", "lightning"):
        pytest.importorskip(library)
    page = api_page.page()
    if os.environ.get("TRAINMON_REGENERATE") == "1":
        API.write_text(page)
    assert API.read_text() == page, "write it anew: TRAINMON_REGENERATE=1 pytest tests/package/test_api_page.py"


def test_everything_that_is_exported_is_on_it() -> None:
    import trainmon

    assert set(trainmon.__all__) - {"__version__"} <= set(api_page.PAGE["trainmon"])
