"""One wheel on several versions of torch: TRAINMON_TORCH_PYTHONS names a Python for each, separated like PATH.

Each of them has the wheel installed as its users would have it; `cargo xtask test` makes them.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PYTHONS = [python for python in os.environ.get("TRAINMON_TORCH_PYTHONS", "").split(os.pathsep) if python]
if not PYTHONS:
    pytest.skip("TRAINMON_TORCH_PYTHONS names no Python with another torch", allow_module_level=True)

#: A process group on the CPU has no all_gather_into_tensor before.
FSDP_ON_CPU = (2, 2)


def run(python: str, *arguments: str, directory: Path) -> str:
    """What a program of one of the Pythons prints. It does not see this checkout's package."""
    variables = {name: value for name, value in os.environ.items() if name != "TRAINMON_SKIP_LOG"}
    # What the tests share, and nothing else of it.
    variables["PYTHONPATH"] = str(TESTS)
    command = [python, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=variables, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def version_of(python: str, directory: Path) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", run(python, "-c", "import torch; print(torch.__version__)", directory=directory))
    assert found is not None
    return int(found[1]), int(found[2])


@pytest.fixture(params=PYTHONS, ids=lambda python: Path(python).parents[1].name)
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A Python that imports the wheel, not this checkout."""
    found: str = request.param
    place = run(found, "-c", "import trainmon; print(trainmon.__file__)", directory=tmp_path)
    assert "site-packages" in place, place
    return found


def test_a_training_is_measured_and_unchanged(python: str, tmp_path: Path) -> None:
    said = run(python, str(TESTS / "scripts/short_run.py"), str(tmp_path), "plain", "ddp", directory=tmp_path)
    assert re.search(r"torch \S+: plain ddp$", said.strip()), said


def test_sharded_parameters_are_measured_and_unchanged(python: str, tmp_path: Path) -> None:
    version = version_of(python, tmp_path)
    if version < FSDP_ON_CPU:
        pytest.skip(f"torch {version[0]}.{version[1]} cannot run FSDP on a CPU: gloo lacks all_gather_into_tensor")
    said = run(python, str(TESTS / "scripts/short_run.py"), str(tmp_path), "fsdp1", directory=tmp_path)
    assert re.search(r"torch \S+: fsdp1$", said.strip()), said


def test_the_extension_reads_its_tensors(python: str, tmp_path: Path) -> None:
    """Element types, layouts and refusals against this torch's own answers."""
    # Torch 2.1 gives the interpreter away itself where it is asked `is_conj` or `is_neg`: how often another thread gets
    # it then is chance, and says nothing of us.
    arguments = ["-q", "-p", "no:cacheprovider", "-k", "not small_tensors_keep_the_interpreter"]
    said = run(python, "-m", "pytest", *arguments, str(TESTS / "measurement/test_native.py"), directory=tmp_path)
    assert re.search(r"\d+ passed", said) and "skipped" not in said, said
