"""What the plugin touches of vLLM, by vLLM's names: an engine whose model is a few linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from vllm.plugins import load_general_plugins
from vllm.v1.worker.worker_base import WorkerWrapperBase


@dataclass
class SamplingParams:
    temperature: float = 0.0
    max_tokens: int = 16


class LLM:
    """An engine in one process. `runner` is this one's own: which of the two model runners."""

    def __init__(
        self,
        model: str = "",
        *,
        enforce_eager: bool = False,
        additional_config: Any = None,
        worker_extension_cls: str = "",
        runner: str = "v1",
    ) -> None:
        load_general_plugins()
        self.vllm_config = SimpleNamespace(
            additional_config=additional_config or {},
            parallel_config=SimpleNamespace(world_size=1, data_parallel_index=0),
            model_config=SimpleNamespace(enforce_eager=enforce_eager),
            runner=runner,
        )
        self.worker = WorkerWrapperBase()
        self.worker.init_worker(self.vllm_config, _resolved(worker_extension_cls))
        self.worker.init_device()
        self.worker.load_model()
        self.worker.warm_up()

    def generate(self, prompts: list[dict[str, list[int]]], sampling_params: SamplingParams) -> list[Any]:
        """Every iteration is one token of each prompt, the first one with the whole prompts."""
        given = [prompt["prompt_token_ids"] for prompt in prompts]
        found: list[list[int]] = [[] for _ in prompts]
        for number in range(sampling_params.max_tokens):
            now = given if number == 0 else [out[-1:] for out in found]
            counts = {str(place): len(ids) for place, ids in enumerate(now)}
            ids = [one for some in now for one in some]
            output = SimpleNamespace(num_scheduled_tokens=counts, total_num_scheduled_tokens=len(ids), ids=ids)
            for out, token in zip(found, self.worker.step(output), strict=True):
                out.append(token)
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=out)]) for out in found]

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return [getattr(self.worker.worker, method)(*args)]


def _resolved(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute) if name else None
