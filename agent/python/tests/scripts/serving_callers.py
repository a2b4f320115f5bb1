"""Engines that capture with msprobe, call for call as they do it: `serving_callers.py ENGINE CONFIG`.

Each is run as a program of its own, by `python -m trainmon.as_msprobe`: nothing in here names trainmon.
"""

import sys
from types import SimpleNamespace

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embed(ids)))


class SglangRunner:
    """Builds the debugger before the model is loaded; start for each forward, stop and step after it."""

    def __init__(self, config: str, gpu_id: int, dp_size: int) -> None:
        self.gpu_id, self.dp_size = gpu_id, dp_size
        try:
            from msprobe.pytorch import PrecisionDebugger, seed_all
        except ImportError as error:
            raise SystemExit(f"no capture: {error}") from error
        seed_all(mode=True)
        self.debugger = PrecisionDebugger(config_path=config)
        self.model = Net().eval()

    @torch.inference_mode()
    def forward(self, ids: list[int]) -> int:
        self.debugger.start(model=self.model, rank_id=self.gpu_id if self.dp_size > 1 else None)
        token = int(self.model(torch.tensor(ids))[-1].argmax())
        self.debugger.stop()
        self.debugger.step()
        return token


class AscendRunner:
    """Positional config and model, the scheduler's tokens, and a finish that is called more often than a start."""

    def __init__(self, config: str) -> None:
        from msprobe.pytorch import PrecisionDebugger

        self.debugger = PrecisionDebugger(config)
        self.model = Net().eval()
        self.is_started = False

    def start(self, scheduler_output: SimpleNamespace) -> None:
        self.debugger.start(self.model, scheduled_tokens=scheduler_output.num_scheduled_tokens)
        self.is_started = True

    def finish(self) -> None:
        if not self.is_started:
            return
        if hasattr(self.debugger, "stop"):
            self.debugger.stop()
        self.debugger.step()
        self.is_started = False

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SimpleNamespace) -> None:
        self.start(scheduler_output)
        self.logits = self.model(torch.tensor(scheduler_output.ids))

    @torch.inference_mode()
    def sample_tokens(self) -> int:
        token = int(self.logits[-1].argmax())
        self.finish()
        self.finish()
        return token


def main(engine: str, config: str) -> None:
    torch.manual_seed(3)
    if engine == "graphs":
        from msprobe.pytorch import AclGraphDumper

        AclGraphDumper(config)
    tokens = [[1, 5, 9]]
    if engine.startswith("sglang"):
        runner = SglangRunner(config, gpu_id=2, dp_size=2 if engine == "sglang-dp" else 1)
        for _ in range(3):
            tokens.append([runner.forward(tokens[-1])])
    else:
        runner = AscendRunner(config)
        # What nobody started may be stepped.
        runner.debugger.step()
        for _ in range(3):
            ids = tokens[-1]
            runner.execute_model(SimpleNamespace(num_scheduled_tokens={"a": len(ids)}, ids=ids))
            tokens.append([runner.sample_tokens()])
    print(tokens[1:])


main(*sys.argv[1:])
