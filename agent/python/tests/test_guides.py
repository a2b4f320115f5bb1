"""Every guide's code, run as it stands."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from support import ranks, runs

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"


def blocks(guide: str, language: str) -> list[str]:
    """The fenced blocks of a guide in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDES / guide).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("guide", "library", "processes", "steps"),
    [
        ("fsdp.md", "torch", 2, 10),
        ("deepspeed.md", "deepspeed", 2, 4),
        ("transformers.md", "transformers", 1, 3),
        ("lightning.md", "lightning", 1, 4),
        ("migrating-from-msprobe.md", "torch", 1, 3),
    ],
    ids=lambda value: str(value).removesuffix(".md"),
)
def test_a_guide_does_what_it_says(guide: str, library: str, processes: int, steps: int, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (config,) = blocks(guide, "json")
    (script,) = blocks(guide, "python")
    (tmp_path / "monitor.json").write_text(config)
    ending = "\nfrom support.ranks import finish\nfinish()\n" if processes > 1 else ""
    (tmp_path / "train.py").write_text(script + ending)
    environment = {"MONITOR_OUTPUT_DIR": str(tmp_path / "out"), "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(tmp_path / "train.py")]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--master_addr=127.0.0.1"]
        command[1:1] = [*launcher, f"--master_port={ranks.free_port()}"]
    # The scripts say "monitor.json" and mean the directory they are started in.
    said = ranks.run(command, environment=environment, timeout=400, directory=tmp_path)
    assert "trainmon: warning" not in said, said
    for rank in range(processes):
        run = runs.run_directory(tmp_path / "out", rank)
        lines = runs.steps(run)
        assert [int(line["step"]) for line in lines] == list(range(steps)), said
        assert all(float(line["grad_norm"]) > 0 for line in lines)
        for kind in ("grad_unreduced", "grad_reduced"):
            assert runs.by_name(runs.rows(run, kind), steps - 1), kind


def test_the_readme_does_what_it_says(tmp_path: Path) -> None:
    readme = (GUIDES.parents[1] / "README.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    ranks.run([sys.executable, str(tmp_path / "train.py")], directory=tmp_path)
    run = runs.run_directory(tmp_path / "monitor_output", 0)
    assert len(runs.steps(run)) == 10
    assert len(runs.by_name(runs.rows(run, "exp_avg"), 9)) == 4


def test_every_guide_is_run_somewhere() -> None:
    run_here = {"fsdp.md", "deepspeed.md", "transformers.md", "lightning.md", "migrating-from-msprobe.md"}
    # Megatron-LM's lines are pasted into its own pretrain_gpt.py by test_megatron_lm.py.
    assert {path.name for path in GUIDES.glob("*.md")} == run_here | {"megatron-lm.md", "README.md"}
    assert "megatron-lm.md" in (Path(__file__).parent / "test_megatron_lm.py").read_text()
