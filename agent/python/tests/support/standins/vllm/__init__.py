"""What the plugin touches of vLLM, by vLLM's names: an engine whose model is a few linear layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm.plugins import load_general_plugins
from vllm.v1.worker.worker_base import WorkerWrapperBase


class LLM:
    """An engine in one process."""

    def __init__(self, *, runner: str = "v1", enforce_eager: bool = True, **config: Any) -> None:
        load_general_plugins()
        parallel = SimpleNamespace(world_size=1, data_parallel_index=0)
        model = SimpleNamespace(enforce_eager=enforce_eager)
        additional = config.pop("additional_config", {})
        self.vllm_config = SimpleNamespace(
            additional_config=additional, parallel_config=parallel, model_config=model, runner=runner, **config
        )
        self.worker = WorkerWrapperBase()
        self.worker.init_worker(self.vllm_config)
        self.worker.init_device()
        self.worker.load_model()
        self.worker.warm_up()

    def generate(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        """Every iteration is one token of each prompt, the first one with the whole prompts."""
        found: list[list[int]] = [[] for _ in prompts]
        for number in range(tokens):
            counts = {f"{place}": len(prompt) if number == 0 else 1 for place, prompt in enumerate(prompts)}
            ids = [
                one for prompt, out in zip(prompts, found, strict=True) for one in (prompt if number == 0 else out[-1:])
            ]
            output = SimpleNamespace(num_scheduled_tokens=counts, total_num_scheduled_tokens=len(ids), ids=ids)
            for out, token in zip(found, self.worker.step(output), strict=True):
                out.append(token)
        return found

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return [getattr(self.worker.worker, method)(*args)]
