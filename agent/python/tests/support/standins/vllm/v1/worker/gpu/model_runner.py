"""The second model runner: it warms up by the function that serves requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm.v1.worker import gpu_model_runner


class GPUModelRunner(gpu_model_runner.GPUModelRunner):
    def warm_up(self) -> None:
        output = SimpleNamespace(num_scheduled_tokens={"": 4}, total_num_scheduled_tokens=4, ids=[0, 0, 0, 0])
        self.execute_model(output, dummy_run=True)
        self.execute_model(output, None, True)

    def execute_model(
        self, scheduler_output: Any, intermediate_tensors: Any = None, dummy_run: bool = False, is_profile: bool = False
    ) -> Any:
        return super().execute_model(scheduler_output, intermediate_tensors)
