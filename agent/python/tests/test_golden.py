"""msprobe's own cases, trained with our monitor attached: its files cell for cell, apart from listed deviations."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import trainmon
from support import control, golden, golden_anomalies, ranks, runs

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    golden.directory() is None, reason="no golden data: set TRAINMON_GOLDEN to the directory of msprobe's outputs"
)

#: Cases that need what is not measuring.
ELSEWHERE = {
    "v1_block_print_struct": "test_structure.py compares it",
    "v1_mlp_stack_info": "test_structure.py compares it",
    "v1_block_l2": "its start vectors are random; test_features.py compares with torch's singular values",
}


CASES = [name for name in golden.cases() if name not in ELSEWHERE]


def nets() -> ModuleType:
    """The nets the cases were made with."""
    place = golden.directory()
    assert place is not None
    spec = importlib.util.spec_from_file_location("golden_nets", place / "tools" / "nets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class WholeGradients:
    """What torch says of the gradients of module inputs and outputs, over all consumers of the tensor."""

    def __init__(self, net: torch.nn.Module, case: golden.Case) -> None:
        self.step = 0
        self.elements = {name: one.numel() for name, one in net.named_parameters()}
        self.found: dict[tuple[int, str], dict[str, float]] = {}
        self._is_v2 = case.is_v2
        for name, module in net.named_modules():
            if case.is_v2:
                module.register_forward_pre_hook(lambda _module, args, name=name: self._watch(name, "input", args))
            module.register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Any:
        def called(_module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not self._is_v2:
                self._watch(name, "input", args)
            self._watch(name, "output", (output,) if isinstance(output, torch.Tensor) else output)

        return called

    def _watch(self, module: str, end: str, values: Any) -> None:
        tensors = [one for one in values if isinstance(one, torch.Tensor)]
        for index, tensor in enumerate(tensors):
            if tensor.requires_grad:
                numbered = f"{module}.grad_{end}.{index}" if self._is_v2 else f"{module}.{end}_{index}"
                row = f"{module}.{end}" if not self._is_v2 and len(tensors) == 1 else numbered
                tensor.register_hook(lambda gradient, row=row: self._keep(row, gradient))

    def _keep(self, row: str, gradient: torch.Tensor) -> None:
        exact = runs.statistics(gradient)
        exact["zeros"] = float((gradient.abs() < 1e-8).double().mean())
        exact["nans"] = float(gradient.isnan().sum())
        self.found[self.step, row] = exact


def edit(file: Path, new: dict[str, Any], said: Callable[[], str]) -> None:
    """Changes keys of the config file, and waits until the monitor has told that it takes effect with the next step."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **new}))
    heard = ""

    def is_told() -> bool:
        nonlocal heard
        heard += said()
        return "live control" in heard

    control.wait_until(is_told)


def train(case: golden.Case, output: Path, said: Callable[[], str]) -> WholeGradients:
    """The training the golden data were recorded from, with our monitor in msprobe's place. `said`: what was said on
    standard error since the last call."""
    given = case.json
    config = case.config()
    if case.is_v2:
        config["output_dir"] = str(output)
    file = output / "config.json"
    file.write_text(json.dumps(config))
    torch.manual_seed(given["seed"])
    net = nets().NETS[given["net"]](**given.get("net_args", {}))
    if given.get("dtype") == "bf16":
        net = net.to(torch.bfloat16)
    net.train()
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
    whole = WholeGradients(net, case)
    generator = torch.Generator().manual_seed(given["seed"] + 1)
    for step in range(given["steps"]):
        place["step"] = whole.step = step + given.get("start_iteration", 0)
        for event in given.get("config_events", []):
            if event["step"] == step:
                edit(file, event["set"], said)
        optimizer.zero_grad()
        for _ in range(micro_batches):
            x, y = net.batch(generator)
            if given.get("dtype") == "bf16":
                x = tuple(one.to(torch.bfloat16) if one.is_floating_point() else one for one in x)
            loss = net.loss(net(*x), y) / micro_batches
            if inject.get("kind") == "grad_scale" and inject["step"] == step:
                loss = loss * inject["factor"]
            loss.backward()
        optimizer.step()
        if given.get("manual_step"):
            manual()
    stop()
    return whole


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


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same cases run by the real msprobe on this machine: a training's last bits are those of its processor."""
    if importlib.util.find_spec("msprobe") is None:
        pytest.skip("msprobe (mindstudio-probe) is not installed")
    place = golden.directory()
    assert place is not None
    base = tmp_path_factory.mktemp("msprobe")
    for name in CASES:
        (base / name).mkdir()
        shutil.copy(place / "01_monitor" / name / "case.json", base / name / "case.json")
    script = ranks.SCRIPTS / "run_msprobe_cases.py"
    ranks.run([sys.executable, str(script), str(place / "tools"), *(str(base / name) for name in CASES)])
    return base


def assert_agrees(tally: golden.Tally, name: str) -> None:
    """Every difference is a listed one, and every listed one is explained to users."""
    assert not tally.faults, "\n".join(tally.faults[:20])
    assert tally.cells > 0
    listed = {deviation: count for deviation, count in tally.deviations.items() if count}
    print(f"{name}: {tally.cells} cells, {tally.identical} identical; {listed}")
    documented = (REPOSITORY / "docs" / "msprobe-compatibility.md").read_text()
    undocumented = [deviation for deviation in listed if f"`{deviation}`" not in documented]
    assert not undocumented, f"docs/msprobe-compatibility.md does not explain {undocumented}"


@pytest.mark.parametrize("name", golden.cases())
def test_our_files_are_msprobes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    case = golden.Case.load(name)
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path))
    if case.json.get("dynamic"):
        monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        whole = train(case, tmp_path, lambda: capfd.readouterr().err)
    run = tmp_path / "rank_0" if case.is_v2 else runs.run_directory(tmp_path, 0)
    ours = golden.tables(run)
    answer = case.answer(live / name)
    here = golden.compare(case, answer, ours, whole.found, elements=whole.elements)
    recorded = golden.compare(case, case.answer(), ours, whole.found, elements=whole.elements, is_other_machine=True)
    if golden_anomalies.asked_for(case):
        # Not with those recorded elsewhere: noise decides about means that are zero but for rounding. The agent's own
        # golden test plays the recorded tensors.
        theirs = golden_anomalies.findings(live / name / "msprobe_out")
        golden_anomalies.compare(case, answer, theirs, golden_anomalies.findings(tmp_path), whole.found, here)
    assert_agrees(here, name)
    assert_agrees(recorded, f"{name}, as recorded elsewhere")
