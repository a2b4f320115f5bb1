"""Every guide's code, run as it stands."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from support import ranks, runs

GUIDES = Path(__file__).resolve().parents[4] / "docs" / "guides"

#: What the fragments of alerts.md stand in. Each run has twelve steps, unless the first of a resumed one ends it: the
#: batch after that comes when the rules have looked.
AROUND_FRAGMENTS = """
import os, time, torch, trainmon

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters())
loss = torch.nn.functional.mse_loss
checkpoint = torch.load("checkpoint.pt") if os.path.exists("checkpoint.pt") else {"step": 0, "trainmon": {}}
is_resumed = checkpoint["step"] > 0
if is_resumed:
    model.load_state_dict(checkpoint["model"])

def some_batches():
    for number in range(12):
        deadline = time.monotonic() + 60
        while is_resumed and number == 1 and not watch.stop_requested:
            assert time.monotonic() < deadline, "nobody asked to stop"
            time.sleep(0.01)
        is_spoilt = is_resumed and number == 0
        yield torch.randn(8, 16), torch.randn(8, 1) * (1e4 if is_spoilt else 1)

batches = some_batches()
"""


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
    (script,) = blocks(guide, "python")
    # A guide that shows no config needs none.
    for config in blocks(guide, "json"):
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
        # Without a config what is equal in one process is written once.
        is_left_out = processes == 1 and (run / "left_out.json").exists()
        for kind in ("grad_reduced",) if is_left_out else ("grad_unreduced", "grad_reduced"):
            assert runs.by_name(runs.rows(run, kind), steps - 1), kind


def test_the_readme_does_what_it_says(tmp_path: Path) -> None:
    readme = (GUIDES.parents[1] / "README.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    ranks.run_alone(tmp_path / "train.py", directory=tmp_path)
    run = runs.run_directory(tmp_path / "monitor_output", 0)
    assert len(runs.steps(run)) == 10
    assert len(runs.by_name(runs.rows(run, "exp_avg"), 9)) == 4


def test_what_the_rules_remember_ends_the_resumed_training(tmp_path: Path) -> None:
    ending, resuming, saving = blocks("../alerts.md", "python")
    (tmp_path / "train.py").write_text(AROUND_FRAGMENTS + resuming + ending + saving + "watch.close()\n")
    rule = {"rule_name": "Spike", "args": {"min_samples": 8}, "on": {"signal": "grad"}, "actions": ["log", "stop"]}
    config = {"wg_distribution": True, "ops": ["norm"], "alert": {"rules": [rule]}}
    (tmp_path / "monitor.json").write_text(json.dumps(config))
    steps = []
    for part in ("first", "resumed"):
        output = tmp_path / part
        environment = {"MONITOR_OUTPUT_DIR": str(output)}
        said = ranks.run_alone(tmp_path / "train.py", environment=environment, directory=tmp_path)
        steps.append([int(line["step"]) for line in runs.steps(runs.run_directory(output, 0))])
        assert ("Spike" in said) == (part == "resumed"), said
    # The rules may look before the first batch's line asks, or after it.
    assert steps[0] == list(range(12)) and steps[1] in ([12], [12, 13]), steps


def test_every_guide_is_run_somewhere() -> None:
    run_here = {"fsdp.md", "deepspeed.md", "transformers.md", "lightning.md", "migrating-from-msprobe.md"}
    # Megatron-LM's lines are pasted into its own pretrain_gpt.py by test_megatron_lm.py.
    run_elsewhere = {
        "megatron-lm.md": "frameworks/test_megatron_lm.py",
        "wandb-mlflow-tensorboard.md": "integrations/test_trackers.py",
    }
    assert {path.name for path in GUIDES.glob("*.md")} == run_here | run_elsewhere.keys()
    for guide, test in run_elsewhere.items():
        assert guide in (Path(__file__).parents[1] / test).read_text()
