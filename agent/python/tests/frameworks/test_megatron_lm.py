"""Megatron-LM's own training script with the lines pasted in that msprobe's manual tells to paste."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from support import runs
from support.ranks import run_ranks

CHECKOUT = os.environ.get("TRAINMON_MEGATRON_LM")

pytestmark = pytest.mark.skipif(
    CHECKOUT is None,
    reason="no package registry has Megatron-LM's training loop: set TRAINMON_MEGATRON_LM to a checkout of the "
    "installed megatron-core's tag",
)

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guides" / "megatron-lm.md"


def block(language: str) -> str:
    """The guide's one block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


#: The guide's lines, pasted after the model and the optimizer are made. Global, for the test to close it.
PASTED = "\n    global monitor\n" + textwrap.indent(block("python"), "    ")
ITERATIONS = 5
ARGUMENTS = f"""
    --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32
    --micro-batch-size 4 --global-batch-size 16 --train-iters {ITERATIONS} --lr 1e-3 --min-lr 1e-4
    --lr-decay-style constant --mock-data --tokenizer-type NullTokenizer --vocab-size 256 --transformer-impl local
    --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion
    --no-persist-layer-norm --attention-backend unfused --distributed-backend gloo --use-cpu-initialization
    --eval-iters 0 --eval-interval 1000 --log-interval 1 --num-workers 0 --no-one-logger --hidden-dropout 0
    --attention-dropout 0
""".split()
WAYS = {
    "data": "",
    "sharded": "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
    "--ddp-bucket-size 40000",
    "tensor": "--tensor-model-parallel-size 2",
    "pipeline": "--pipeline-model-parallel-size 2",
}
LINE = re.compile(r"iteration +(\d+)/.*?lm loss: (\S+).*?grad norm: (\S+)")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Megatron-LM without its core, as it is and with our lines."""
    assert CHECKOUT is not None
    made = {}
    for name in ("original", "pasted"):
        made[name] = copy = tmp_path_factory.mktemp(name)
        shutil.copytree(Path(CHECKOUT) / "megatron", copy / "megatron", ignore=without_core)
        for file in ("pretrain_gpt.py", "gpt_builders.py", "model_provider.py"):
            if (Path(CHECKOUT) / file).exists():
                shutil.copy(Path(CHECKOUT) / file, copy)
    loop = made["pasted"] / "megatron" / "training" / "training.py"
    text = loop.read_text()
    call = re.compile(
        r"\n    model, optimizer, opt_param_scheduler = setup_model_and_optimizer\(.*?\n    \)\n", re.DOTALL
    )
    assert len(call.findall(text)) == 1
    loop.write_text(call.sub(lambda found: found[0] + PASTED, text))
    return made


def without_core(directory: str, names: list[str]) -> list[str]:
    """What is not copied."""
    return ["core"] if directory.endswith("megatron") else []


def pretrain(copy: Path, way: str, output: Path) -> list[tuple[str, str]]:
    """Loss and norm of each iteration, as logged."""
    config = json.loads(block("json")) | {"param_distribution": True}
    (output / "monitor.json").write_text(json.dumps(config))
    printed = run_ranks(
        "megatron_lm.py",
        2,
        copy,
        *ARGUMENTS,
        *WAYS[way].split(),
        environment={"MONITOR_OUTPUT_DIR": str(output / "runs")},
        directory=output,
    )
    found = LINE.findall(printed)
    assert [int(number) for number, _, _ in found] == list(range(1, ITERATIONS + 1)), printed[-6000:]
    return [(loss, norm) for _, loss, norm in found]


@pytest.mark.parametrize("way", WAYS)
def test_the_norm_is_the_logged_one(copies: dict[str, Path], way: str, tmp_path: Path) -> None:
    """Every step's norm equals what Megatron computed and logged; every watched tensor has its rows."""
    logged = pretrain(copies["pasted"], way, tmp_path)
    directory = runs.run_directory(tmp_path / "runs", 0)
    lines = runs.steps(directory)
    assert len(lines) == ITERATIONS
    for line, (_, norm) in zip(lines, logged, strict=True):
        ours, theirs = float(line["grad_norm"]), float(line["framework_grad_norm"])
        assert math.isclose(ours, theirs, rel_tol=2e-6), line
        assert math.isclose(ours, float(norm), abs_tol=6e-4), (line, norm)
    for kind in ("grad_unreduced", "grad_reduced", "param_origin", "param_updated"):
        counts = {step: len(runs.by_name(runs.rows(directory, kind), step)) for step in range(ITERATIONS)}
        assert len(set(counts.values())) == 1, (kind, counts)
        assert counts[0] > 0, kind


def test_nothing_changes(copies: dict[str, Path], tmp_path: Path) -> None:
    """Logged losses and norms are the same without the pasted lines."""
    logged = {}
    for name, copy in copies.items():
        (tmp_path / name).mkdir()
        logged[name] = pretrain(copy, "sharded", tmp_path / name)
    assert logged["original"] == logged["pasted"]
