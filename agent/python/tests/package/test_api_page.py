"""docs/api.md says what the docstrings say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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


def test_its_signatures_are_python() -> None:
    """`ast` reads each code block."""
    blocks = re.findall(r"```python\n(.*?)```", API.read_text(), re.DOTALL)
    assert len(blocks) > 40
    for block in blocks:
        ast.parse(block)


def test_completion_offers_what_is_on_the_page_and_nothing_else() -> None:
    """`dir` is what editors and notebooks complete from."""
    import trainmon

    assert dir(trainmon) == sorted(trainmon.__all__)
    watch = object.__new__(trainmon.Watch)
    listed = re.findall(r"^#### `Watch\.(\w+)`$", API.read_text(), re.MULTILINE)
    assert dir(watch) == sorted(listed)


def test_without_torch_a_name_that_requires_it_says_so(tmp_path: Path) -> None:
    """The package itself is imported without torch, and the error names the Python that lacks it."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    script = "import trainmon; print(trainmon.__version__); trainmon.watch"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout.strip()
    last = ended.stderr.splitlines()[-1]
    assert "`trainmon.watch` requires PyTorch" in last
    assert sys.executable in last


def test_everything_that_is_exported_is_on_it() -> None:
    import trainmon

    assert set(trainmon.__all__) - {"__version__"} <= set(api_page.PAGE["trainmon"])
