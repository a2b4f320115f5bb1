"""The real vLLM on a CPU: msprobe's recorded dumps, and the plugin.

TRAINMON_VLLM_PYTHON names a Python that has vLLM and the wheel; `cargo xtask test --full` makes one. The plugin's logic
is tested without it: `test_vllm_plugin.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import dump_deviations, dump_runs, dumps, golden
from support.environment import ENVIRONMENT

PYTHON = os.environ.get("TRAINMON_VLLM_PYTHON", "")
if not PYTHON:
    pytest.skip("TRAINMON_VLLM_PYTHON names no Python with vLLM", allow_module_level=True)

GOLDEN = golden.directory()
CASES = [] if GOLDEN is None else sorted(path.parent.name for path in (GOLDEN / "10_vllm").glob("*/case.json"))
GUIDE = Path(__file__).resolve().parents[4] / "docs" / "serving.md"
#: A small machine, no hub, and no code that is compiled.
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
#: What the recorded program gives its engine.
ENGINE = (
    'load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, dtype="float32", max_model_len=64, '
    "max_num_seqs=2, seed=7"
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case, its own program run with trainmon behind msprobe's names."""
    place = tmp_path_factory.mktemp("vllm")
    for name in CASES:
        (place / name).mkdir()
        shutil.copyfile(GOLDEN / "10_vllm" / name / "case.json", place / name / "case.json")
    program = str(GOLDEN / "10_vllm" / "tools" / "run_dump_vllm.py")
    job = {"program": program, "arguments": [str(place / name) for name in CASES], "directory": str(place)}
    (place / "jobs.json").write_text(json.dumps([job]))
    run([str(dump_runs.SCRIPT), str(place / "jobs.json")], place, {})
    for name in CASES:
        assert (place / name / "run.json").exists(), (place / name / "log.txt").read_text()[-3000:]
    return place


def run(words: list[str], place: Path, variables: dict[str, str]) -> str:
    ended = subprocess.run(
        [PYTHON, *words],
        env={**ENVIRONMENT, **VARIABLES, **variables},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout + ended.stderr


def check(name: str, ours: Path) -> None:
    recorded = GOLDEN / "10_vllm" / name
    config = json.loads((recorded / "case.json").read_text())["config"]
    outcome = dumps.compare(
        ours, recorded / "msprobe_out", lambda one: dump_deviations.reason(f"vllm_{name}", config, one)
    )
    print(f"{name}: {outcome.fields} fields, {outcome.close} within tolerance, {len(outcome.differing)} differing")
    for why, count in outcome.excused.items():
        print(f"  {count} deviations: {why}")
    assert not outcome.differing, outcome.differing[:5]
    assert outcome.fields > 0


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_a_recorded_dump_of_vllm_is_reproduced(name: str, ran: Path) -> None:
    check(name, ran / name / "msprobe_out")


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("name", CASES)
def test_the_engine_generates_the_same_with_a_capture(name: str, ran: Path) -> None:
    assert json.loads((ran / name / "run.json").read_text()) == json.loads(
        (GOLDEN / "10_vllm" / name / "run.json").read_text()
    )


def model_in(place: Path) -> None:
    """The recorded program's model."""
    program = (GOLDEN / "10_vllm" / "tools" / "run_dump_vllm.py").read_text()
    (literal,) = re.findall(r"^MODEL = (\{.*?\})$", program, re.MULTILINE | re.DOTALL)
    (place / "my-model").mkdir()
    (place / "my-model" / "config.json").write_text(json.dumps(eval(literal)))  # a literal with Python's `False`


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("processes", ["one", "several"])
def test_the_plugin_captures_what_the_recorded_program_did(processes: str, tmp_path: Path) -> None:
    """A program that knows nothing of captures, and a variable."""
    case = json.loads((GOLDEN / "10_vllm" / "stat_mix_2steps" / "case.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(case["config"]))
    model_in(tmp_path)
    (tmp_path / "serve.py").write_text(
        "from vllm import LLM, SamplingParams\n"
        'if __name__ == "__main__":\n'
        f'    llm = LLM("my-model", {ENGINE})\n'
        f"    prompts = [{{'prompt_token_ids': ids}} for ids in {case['prompts']}]\n"
        "    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=4, detokenize=False, ignore_eos=True))\n"
    )
    variables = {"TRAINMON_CAPTURE_CONFIG": "capture.json"}
    if processes == "one":
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    run(["serve.py"], tmp_path, variables)
    check("stat_mix_2steps", tmp_path / "msprobe_out")


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
@pytest.mark.parametrize("number", [0, 1])
def test_the_guides_programs_capture(number: int, tmp_path: Path) -> None:
    """As they stand, but for what a model without weights and without a tokenizer needs."""
    guide = GUIDE.read_text()
    program = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)[number]
    (config,) = re.findall(r"^```json\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert "enforce_eager=True" in program
    program = program.replace("enforce_eager=True", ENGINE).replace(
        "max_tokens=4", "max_tokens=4, detokenize=False, ignore_eos=True"
    )
    (tmp_path / "serve.py").write_text(program)
    (tmp_path / "capture.json").write_text(config)
    model_in(tmp_path)
    run(["serve.py"], tmp_path, {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    names = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "captured").glob("*/*/dump.json"))
    assert names == [f"captured/step{step}/rank0/dump.json" for step in range(3)]
    data = json.loads((tmp_path / names[0]).read_text())["data"]
    assert data["Module.model.embed_tokens.VocabParallelEmbedding.forward.0"]["input_args"][0]["shape"] == [3]


#: Captures of one engine, one after the other: what is asked for, and names that have to be in the second step.
LEVELS = {
    "named": (
        {"level": "mix", "risk_level": "ALL", "custom_op_namespaces": ["vllm", "_C"]},
        ["vllm.unified_attention_with_output.1.forward", "_C.rotary_embedding.1.forward", "_C.onednn_mm.0.forward"],
    ),
    "operators": ({"level": "L2"}, ["Aten.flatten.using_ints.0.forward"]),
    "tensors": ({"level": "mix", "task": "tensor"}, ["Module.model.norm.RMSNorm.forward.0"]),
    "checksums": ({"level": "L1", "statistics": {"summary_mode": "md5"}}, ["Functional.silu.1.forward"]),
}


@pytest.mark.skipif(GOLDEN is None, reason="no golden data here (TRAINMON_GOLDEN)")
def test_captures_of_every_kind_leave_the_engine_as_it_was(tmp_path: Path) -> None:
    """One engine, told to capture again and again; it generates the same each time."""
    model_in(tmp_path)
    configs = {
        name: {"task": "statistics", "dump_path": name, "statistics": {}, **keys} for name, (keys, _) in LEVELS.items()
    }
    (tmp_path / "configs.json").write_text(json.dumps(configs))
    (tmp_path / "serve.py").write_text(f"""
import json
from vllm import LLM, SamplingParams

llm = LLM("my-model", {ENGINE}, worker_extension_cls="trainmon.vllm.WorkerExtension")

def generate():
    params = SamplingParams(temperature=0.0, max_tokens=3, detokenize=False, ignore_eos=True)
    return llm.generate([{{"prompt_token_ids": [1, 5, 9, 33, 77]}}], params)[0].outputs[0].token_ids

bare = list(generate())
for config in json.load(open("configs.json")).values():
    assert llm.collective_rpc("trainmon_begin", args=(config, True)) == [""]
    assert list(generate()) == bare
    llm.collective_rpc("trainmon_end")
assert list(generate()) == bare
""")
    run(["serve.py"], tmp_path, {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    for name, (_, wanted) in LEVELS.items():
        steps = sorted(path.name for path in (tmp_path / name).iterdir())
        assert steps == ["step0", "step1", "step2"], name
        directory = tmp_path / name / "step1" / "rank0"
        data = json.loads((directory / "dump.json").read_text())["data"]
        assert [one for one in wanted if one not in data] == [], (name, list(data))
        assert not (directory / "dump_error_info.log").exists(), (directory / "dump_error_info.log").read_text()
