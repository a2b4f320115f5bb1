"""Trains the net of a case under msprobe's monitor and keeps the tensors it looked at: `run_monitor.py CASE_DIRECTORY`.

Reads `case.json`; leaves msprobe's files in `msprobe_out`, and the tensors in `tensors.safetensors` under
`<prefix>/<step>/<name>[/<micro-batch>]` (V1) or `module/<step>/<scope>/<name>/<call>` (V2), in the order of their coming.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

CASE = Path(sys.argv[1]).resolve()
facts: dict[str, Any] = json.loads((CASE / "case.json").read_text())
os.environ["MONITOR_OUTPUT_DIR"] = str(CASE / "msprobe_out")
if facts.get("dynamic"):
    os.environ["DYNAMIC_MONITOR"] = "True"
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch  # noqa: E402
from nets import NETS  # noqa: E402

torch.set_num_threads(1)
IS_V2 = facts["monitor"] == "v2"
MICRO_BATCHES = facts.get("grad_acc", 1)
FIRST = facts.get("start_iteration", 0)
DTYPES = {"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.int64": "I64", "torch.bool": "BOOL"}

kept: dict[str, torch.Tensor] = {}
step = FIRST


def keep(key: str, tensor: torch.Tensor | None) -> None:
    if tensor is not None:
        kept[key] = tensor.detach().clone().contiguous()


def tensors_of(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value) if isinstance(value, list | tuple) else []


class Recorder:
    """Looks at every module as msprobe does: inputs and outputs after the call (V2: inputs before), gradients where they
    cross the module's border."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.calls: Counter[tuple[Any, ...]] = Counter()
        for name, module in net.named_modules():
            if IS_V2:
                module.register_forward_pre_hook(self.entering(name), with_kwargs=True)
            module.register_forward_hook(self.left(name), with_kwargs=True)
            module.register_full_backward_hook(self.gone_back(name))

    def put(self, prefix: str, end: str, values: list[Any]) -> None:
        if IS_V2:
            scope = "forward" if prefix == "actv" else "backward"
            for index, value in enumerate(one for one in values if isinstance(one, torch.Tensor)):
                key = f"module/{step}/{scope}/{end}.{index}"
                keep(f"{key}/{self.calls[key]}", value)
                self.calls[key] += 1
            return
        key = f"{prefix}/{step}/{end}"
        micro, self.calls[key] = self.calls[key] % MICRO_BATCHES, self.calls[key] + 1
        for index, value in enumerate(values):
            place = key if len(values) == 1 else f"{key}_{index}"
            keep(f"{place}/{micro}", value)

    def entering(self, name: str) -> Any:
        return lambda _module, args, kwargs: self.put("actv", f"{name}.input", [*args, *kwargs.values()])

    def left(self, name: str) -> Any:
        def left(_module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if not IS_V2:
                inputs = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
                self.put("actv", f"{name}.input", inputs)
            self.put("actv", f"{name}.output", tensors_of(output))

        return left

    def gone_back(self, name: str) -> Any:
        ends = ("grad_input", "grad_output") if IS_V2 else ("input", "output")

        def gone_back(_module: Any, into: Any, out_of: Any) -> None:
            for end, gradients in zip(ends, (into, out_of), strict=True):
                self.put("actv_grad", f"{name}.{end}", tensors_of(gradients))

        return gone_back


def keep_parameters(prefix: str, net: torch.nn.Module, micro: int | None = None) -> None:
    for name, one in net.named_parameters():
        tail = "" if micro is None else f"/{micro}"
        keep(f"{prefix}/{step}/{name}{tail}", one.grad if prefix.startswith("grad") else one)


def keep_moments(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for name, one in net.named_parameters():
        for moment in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            keep(f"{moment}/{step}/{name}", optimizer.state.get(one, {}).get(moment))


def has(prefix: str) -> bool:
    """Whether the case asks for it."""
    config = dict(facts["config"])
    for event in facts.get("config_events", []):
        config.update(event["set"])
    if IS_V2:
        monitors = {"grad": "weight_grad", "param": "param", "exp_a": "optimizer", "momen": "optimizer", "modul": "module"}
        asked = config["monitors"].get(monitors[next(short for short in monitors if prefix.startswith(short))])
        return asked is not None and asked.get("enabled", prefix == "module")
    asked = {"grad": ("wg_distribution", "mg_direction"), "param": ("param_distribution",), "actv": ("xy_distribution",)}
    of_moments = ("mv_distribution", "mg_direction")
    return any(config.get(key) for short, keys in asked.items() if prefix.startswith(short) for key in keys) or (
        prefix in ("exp_avg", "exp_avg_sq", "momentum_buffer") and any(config.get(key) for key in of_moments)
    )


def save(file: Path) -> None:
    """In the safetensors format, tensors in the order of their coming."""
    header: dict[str, Any] = {}
    data: list[bytes] = []
    end = 0
    for key, tensor in kept.items():
        raw = bytes(tensor.flatten().view(torch.uint8).tolist()) if tensor.numel() else b""
        header[key] = {"dtype": DTYPES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [end, end + len(raw)]}
        end += len(raw)
        data.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def main() -> None:
    global step
    config_file = CASE / "work_config.json"
    config = dict(facts["config"])
    torch.manual_seed(facts["seed"])
    net = NETS[facts["net"]](**facts.get("net_args", {}))
    net = net.to({"bf16": torch.bfloat16, "f16": torch.float16}.get(facts.get("dtype"), torch.float32)).train()
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(net.parameters(), lr=facts.get("lr", 1e-2))
        if facts["optimizer"] == "adamw"
        else torch.optim.SGD(net.parameters(), lr=facts.get("lr", 5e-2), momentum=0.9)
    )
    inject = facts.get("inject", {})
    if inject.get("kind") == "nan_act":

        def spoil(_module: Any, _args: Any, out: torch.Tensor) -> torch.Tensor:
            if step != inject["step"]:
                return out
            out = out.clone()
            out.view(-1)[0] = float("nan")
            return out

        net.get_submodule(inject["module"]).register_forward_hook(spoil)
    if IS_V2:
        from msprobe.core.monitor_v2.trainer import TrainerMonitorV2

        (CASE / "msprobe_out").mkdir()
        config_file.write_text(json.dumps({**config, "output_dir": str(CASE / "msprobe_out")}))
        monitor = TrainerMonitorV2(str(config_file), fr="pytorch")
        monitor.start(model=net, optimizer=optimizer, **({"grad_acc_steps": MICRO_BATCHES} if MICRO_BATCHES > 1 else {}))
    else:
        from msprobe.pytorch import TrainerMon

        config_file.write_text(json.dumps(config))
        monitor = TrainerMon(str(config_file), params_have_main_grad=False)
        monitor.set_monitor(net, grad_acc_steps=MICRO_BATCHES, optimizer=optimizer, start_iteration=FIRST)
    if has("module" if IS_V2 else "actv"):
        Recorder(net)
    unreduced = config.get("monitor_mbs_grad") or config.get("monitors", {}).get("weight_grad", {}).get("monitor_mbs_grad")
    generator = torch.Generator().manual_seed(facts["seed"] + 1)
    for number in range(facts["steps"]):
        step = FIRST + number
        for event in facts.get("config_events", []):
            if event["step"] == number:
                config_file.write_text(json.dumps({**json.loads(config_file.read_text()), **event["set"]}))
                # msprobe looks at the time of the last change.
                os.utime(config_file, (0, 1_000_000 + number))
        optimizer.zero_grad()
        for micro in range(MICRO_BATCHES):
            inputs, wanted = net.batch(generator)
            inputs = tuple(one.to(next(net.parameters()).dtype) if one.is_floating_point() else one for one in inputs)
            out = net(*inputs)
            loss = net.loss(out, wanted) / MICRO_BATCHES
            if inject.get("kind") == "grad_scale" and inject["step"] == number:
                loss = loss * inject["factor"]
            loss.backward()
            if unreduced:
                keep_parameters("grad_unreduced", net, micro + IS_V2)
            elif micro == MICRO_BATCHES - 1:
                keep_parameters("grad_unreduced", net)
        keep_parameters("grad_reduced", net)
        keep_parameters("param_origin", net)
        if not IS_V2:
            keep_moments(net, optimizer)
        optimizer.step()
        keep_parameters("param_updated", net)
        if IS_V2:
            keep_moments(net, optimizer)
    if IS_V2:
        monitor.stop()
    config_file.unlink()
    for key in [key for key in kept if not has(key.split("/")[0])]:
        del kept[key]
    save(CASE / "tensors.safetensors")


main()
