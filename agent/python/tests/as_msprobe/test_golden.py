"""msprobe's own cases, trained with our monitor attached: its files cell for cell, apart from listed deviations."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import trainmon
from support import golden, golden_anomalies, golden_compare, golden_mutations, ranks, runs
from support.command import trainmon as trainmon_compare
from support.golden_truth import Truth
from support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[4]

#: Cases that need what is not measuring.
ELSEWHERE = {
    "v1_block_print_struct": "test_structure.py compares it",
    "v1_mlp_stack_info": "test_structure.py compares it",
    "v1_block_l2": "its start vectors are random; test_features.py compares with torch's singular values",
}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}

CASES = [(folder, name) for folder, found in golden.folders().items() for name in found.cases]


def nets_of(tools: Path) -> ModuleType:
    """The nets the cases were made with."""
    spec = importlib.util.spec_from_file_location("golden_nets", tools / "nets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def edit(file: Path, new: dict[str, Any], said: Callable[[], str]) -> None:
    """Changes keys of the config file, and waits until the monitor has told that it takes effect with the next step."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **new}))
    heard = ""

    def is_told() -> bool:
        nonlocal heard
        heard += said()
        return "live control" in heard

    eventually(is_told)


def train(case: golden.Case, nets: ModuleType, output: Path, said: Callable[[], str]) -> Truth:
    """The training the golden data were recorded from, with our monitor in msprobe's place. `said`: what was said on
    standard error since the last call."""
    given = case.json
    config = case.config()
    if case.is_v2:
        config["output_dir"] = str(output)
    file = output / "config.json"
    file.write_text(json.dumps(config))
    torch.manual_seed(given["seed"])
    net = nets.NETS[given["net"]](**given.get("net_args", {}))
    dtype = DTYPES.get(given.get("dtype"), torch.float32)
    net = net.to(dtype).train()
    optimizers = {
        "adamw": lambda: torch.optim.AdamW(net.parameters(), lr=given.get("lr", 1e-2)),
        "sgdm": lambda: torch.optim.SGD(net.parameters(), lr=given.get("lr", 5e-2), momentum=0.9),
    }
    optimizer = optimizers[given["optimizer"]]()
    micro_batches = given.get("grad_acc", 1)
    inject = given.get("inject", {})
    place = {"step": 0}
    if inject.get("kind") == "nan_act":

        def spoil(_module: torch.nn.Module, _args: Any, out: torch.Tensor) -> torch.Tensor:
            if place["step"] == inject["step"]:
                out = out.clone()
                out.view(-1)[0] = float("nan")
            return out

        dict(net.named_modules())[inject["module"]].register_forward_hook(spoil)
    stop, manual = attach(case, file, net, optimizer, micro_batches)
    truth = Truth(net, optimizer, case)
    generator = torch.Generator().manual_seed(given["seed"] + 1)
    for step in range(given["steps"]):
        place["step"] = truth.step = step + given.get("start_iteration", 0)
        for event in given.get("config_events", []):
            if event["step"] == step:
                edit(file, event["set"], said)
        optimizer.zero_grad()
        for micro in range(micro_batches):
            truth.micro = micro
            x, y = net.batch(generator)
            x = tuple(one.to(dtype) if one.is_floating_point() else one for one in x)
            loss = net.loss(net(*x), y) / micro_batches
            if inject.get("kind") == "grad_scale" and inject["step"] == step:
                loss = loss * inject["factor"]
            loss.backward()
        truth.before_step()
        optimizer.step()
        truth.after_step()
        if given.get("manual_step"):
            manual()
    stop()
    return truth


def attach(case: golden.Case, file: Path, net: torch.nn.Module, optimizer: Any, micro_batches: int) -> Any:
    """Attaches the monitor of the case; gives what stops it, and what ends a step by hand."""
    if case.is_v2:
        second = trainmon.TrainerMonitorV2(file, fr="pytorch")
        second.start(model=net, optimizer=optimizer, **({"grad_acc_steps": micro_batches} if micro_batches > 1 else {}))
        return second.stop, second.step
    first = trainmon.TrainerMon(file, params_have_main_grad=False)
    first.set_monitor(
        net,
        grad_acc_steps=micro_batches,
        optimizer=optimizer,
        start_iteration=case.json.get("start_iteration", 0),
    )
    return first.close, lambda: None


@dataclass(frozen=True)
class Recorded:
    """The cases of a folder: as recorded, and as the real msprobe runs them on this machine."""

    cases: Path
    live: Path
    nets: ModuleType


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Every folder, by name. A training's last bits are those of its processor: msprobe runs here, too."""
    if importlib.util.find_spec("msprobe") is None:
        pytest.skip("msprobe (mindstudio-probe) is not installed")
    found = {}
    words: list[str] = []
    for folder, given in golden.folders().items():
        base = tmp_path_factory.mktemp(folder)
        cases, live = given.unpack(base / "unpacked"), base / "live"
        names = [name for name in given.cases if name not in ELSEWHERE]
        for name in names:
            (live / name).mkdir(parents=True)
            shutil.copy(cases / name / "case.json", live / name / "case.json")
        words += ["--"] * bool(words) + [str(given.tools), *(str(live / name) for name in names)]
        found[folder] = Recorded(cases, live, nets_of(given.tools))
    ranks.run([sys.executable, str(ranks.SCRIPTS / "run_msprobe_cases.py"), *words])
    return found


def assert_agrees(tally: golden_compare.Tally, name: str) -> None:
    """Every difference is a listed one, and every listed one is explained to users."""
    assert not tally.faults, "\n".join(tally.faults[:20])
    assert tally.cells > 0
    listed = {deviation: count for deviation, count in tally.deviations.items() if count}
    print(f"{name}: {tally.cells} cells, {tally.identical} identical; {listed}")
    documented = (REPOSITORY / "docs" / "msprobe-compatibility.md").read_text()
    undocumented = [deviation for deviation in listed if f"`{deviation}`" not in documented]
    assert not undocumented, f"docs/msprobe-compatibility.md does not explain {undocumented}"


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_our_files_are_msprobes(
    folder: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, Recorded],
    capfd: pytest.CaptureFixture[str],
) -> None:
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    place = recorded[folder]
    case = golden.Case.load(place.cases / name)
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path))
    if case.json.get("dynamic"):
        monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        truth = train(case, place.nets, tmp_path, lambda: capfd.readouterr().err)
    run = tmp_path / "rank_0" if case.is_v2 else runs.run_directory(tmp_path, 0)
    ours = golden.tables(run)
    answer = case.answer(place.live / name)
    here = golden_compare.compare(case, answer, ours, truth)
    elsewhere = golden_compare.compare(case, case.answer(), ours, truth, is_other_machine=True)
    if golden_anomalies.asked_for(case):
        # Not with those recorded elsewhere: noise decides about means that are zero but for rounding. The agent's own
        # golden test plays the recorded tensors.
        theirs = golden_anomalies.findings(place.live / name / "msprobe_out")
        golden_anomalies.compare(case, answer, theirs, golden_anomalies.findings(tmp_path), truth, here)
    assert_agrees(here, name)
    assert_agrees(elsewhere, f"{name}, as recorded elsewhere")
    # Whoever moves from msprobe compares the two first.
    said = trainmon_compare("compare", tmp_path, place.live / name / "msprobe_out", "--json")
    verdict = json.loads(said.stdout)["verdict"]
    assert verdict["answer"] not in ("diverges", "different_start"), (name, verdict)
    for what, altered_answer, altered in golden_mutations.of(case, answer, ours, truth, here):
        assert golden_compare.compare(case, altered_answer, altered, truth).faults, f"not found: {what}"
