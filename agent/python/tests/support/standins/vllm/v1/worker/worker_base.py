"""The wrapper that every executor has around its worker, and a worker."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.gpu.model_runner import GPUModelRunner as RunnerV2
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class Worker:
    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        self.rank = 0

    def init_device(self) -> None:
        runner = RunnerV2 if self.vllm_config.runner == "v2" else GPUModelRunner
        self.model_runner = runner(self.vllm_config)


class WorkerWrapperBase:
    def init_worker(self, vllm_config: Any, extension: Any) -> None:
        kind = type("Worker", (Worker, extension), {}) if extension else Worker
        self.worker = kind(vllm_config)

    def init_device(self) -> None:
        self.worker.init_device()

    def load_model(self) -> None:
        self.worker.model_runner.load_model()

    def warm_up(self) -> None:
        self.worker.model_runner.warm_up()

    def step(self, scheduler_output: Any) -> list[int]:
        runner = self.worker.model_runner
        output = runner.execute_model(scheduler_output, None)
        return runner.sample_tokens(None) if output is None else output
