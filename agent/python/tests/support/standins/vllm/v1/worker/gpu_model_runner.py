"""The first model runner: its warm-up is a function of its own."""

from __future__ import annotations

from typing import Any

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.mix = torch.nn.Linear(8, 8, bias=False)
        self.head = torch.nn.Linear(8, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.embed(ids))))


class GPUModelRunner:
    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        self.logits: torch.Tensor | None = None

    def load_model(self) -> None:
        torch.manual_seed(3)
        self.model = Net()

    def get_model(self) -> torch.nn.Module:
        return self.model

    def warm_up(self) -> None:
        self.model(torch.zeros(4, dtype=torch.long))

    @torch.inference_mode()
    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if scheduler_output.ids == [13]:
            raise RuntimeError("an unlucky request")
        logits = self.model(torch.tensor(scheduler_output.ids))
        ends = torch.tensor(list(scheduler_output.num_scheduled_tokens.values())).cumsum(0) - 1
        self.logits = logits[ends]
        return None

    @torch.inference_mode()
    def sample_tokens(self, grammar_output: Any) -> list[int]:
        return self.logits.argmax(-1).tolist()
