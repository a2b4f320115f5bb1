"""A tiny GPT of Megatron-core under its DDP and optimizer, and its training loop. Needs `megatron_cpu.install`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import distributed

if not hasattr(moe_utils, "te_general_gemm"):
    # Megatron asks for it by name also where Transformer Engine is not installed.
    moe_utils.te_general_gemm = None

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 32, 4, 2, 16, 2

# What the imports made stays: `start` would look through it for what refers to itself, once per case.
gc.freeze()


@dataclass(frozen=True)
class Case:
    """One way of training."""

    name: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    vpp: int | None = None
    micro: int = 2
    dist: bool = False
    overlap: bool = False
    bf16: bool = False
    fp16: bool = False
    experts: int | None = None
    per_token: bool = False
    clip: float = 0.5
    layers: int = LAYERS
    """Of the model; with virtual stages, so many times as many."""
    bucket: int | None = None
    instances: int = 1
    reruns: int = 0
    """How often forward and backward are run again before the step, as Megatron does to check for faults."""

    @property
    def is_16_bit(self) -> bool:
        """Whether the model's parameters are not fp32."""
        return self.bf16 or self.fp16


def start(case: Case) -> None:
    """Megatron's groups for a case, in place of those of the case before."""
    parallel_state.destroy_model_parallel()
    _end_groups()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case.tp,
        pipeline_model_parallel_size=case.pp,
        virtual_pipeline_model_parallel_size=case.vpp,
        expert_model_parallel_size=case.ep,
        num_distributed_optimizer_instances=case.instances,
    )


def _end_groups() -> None:
    """Ends every group but the world: Megatron makes some twenty for a case and forgets them, and gloo has three
    threads for each, of which one wakes a hundred times a second."""
    world = distributed.group.WORLD
    distributed.barrier()
    for group in [one for one in distributed.distributed_c10d._world.pg_map if one is not world]:
        distributed.destroy_process_group(group)
    # What the models of the case before are a part of refers to itself, and to its groups.
    gc.collect()


def config_of(case: Case, *, pp: int | None = None) -> TransformerConfig:
    """The model's configuration; with `pp=1`, that of the whole model on one rank."""
    stages = pp or case.pp
    experts: dict[str, Any] = {}
    if case.experts is not None:
        experts = {
            "num_moe_experts": case.experts,
            "expert_model_parallel_size": case.ep,
            "moe_router_topk": 2,
            "moe_token_dispatcher_type": "allgather",
            "moe_ffn_hidden_size": 2 * WIDTH,
            "add_bias_linear": False,
        }
    return TransformerConfig(
        num_layers=case.layers * (case.vpp or 1),
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        use_cpu_initialization=True,
        tensor_model_parallel_size=case.tp,
        pipeline_model_parallel_size=stages,
        virtual_pipeline_model_parallel_size=case.vpp if stages > 1 else None,
        pipeline_dtype=torch.bfloat16 if case.bf16 else torch.float32,
        bf16=case.bf16,
        fp16=case.fp16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        persist_layer_norm=False,
        calculate_per_token_loss=case.per_token,
        variable_seq_lengths=False,
        **experts,
    )


def net_of(
    config: TransformerConfig, case: Case, *, first: bool = True, last: bool = True, chunk: int | None = None
) -> Any:
    """A GPT, or a pipeline stage of it, in the case's precision."""
    net: Any = GPTModel(
        config,
        get_gpt_layer_local_spec(num_experts=case.experts, moe_grouped_gemm=False),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=True,
        vp_stage=chunk,
    )
    return Float16Module(config, net) if case.is_16_bit else net


def build(case: Case) -> tuple[list[Any], Any]:
    """Model chunks under Megatron's DDP and its optimizer, from a fixed seed."""
    torch.manual_seed(7)
    model_parallel_cuda_manual_seed(7)
    config = config_of(case)
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        use_distributed_optimizer=case.dist,
        overlap_grad_reduce=case.overlap,
        overlap_param_gather=case.overlap and case.dist,
        bucket_size=case.bucket,
        num_distributed_optimizer_instances=case.instances,
    )
    models = []
    for chunk in range(case.vpp or 1):
        vp = chunk if case.vpp else None
        is_first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp)
        is_last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp)
        net = net_of(config, case, first=is_first, last=is_last, chunk=vp)
        models.append(DistributedDataParallel(config, ddp, net, disable_bucketing=chunk > 0))
    for model in models:
        model.broadcast_params()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-3,
            weight_decay=0.0,
            adam_beta1=0.9,
            adam_beta2=0.95,
            bf16=case.bf16,
            fp16=case.fp16,
            params_dtype=torch.bfloat16 if case.bf16 else torch.float16 if case.fp16 else torch.float32,
            initial_loss_scale=2.0**20,
            hysteresis=1,
            loss_scale_window=3,
            use_distributed_optimizer=case.dist,
            overlap_param_gather=case.overlap and case.dist,
            clip_grad=case.clip,
        ),
        models,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if case.overlap:
        syncs = [model.no_sync for model in models]
        config.no_sync_func = syncs[0] if len(syncs) == 1 else syncs
    return models, optimizer


def batch(step: int, shard: int, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets of one micro-batch of one data-parallel rank."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * shard + micro)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def forward(net: Any, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """One forward pass: the loss of each token on the last stage, activations elsewhere."""
    tokens, targets = data
    positions = torch.arange(LENGTH).unsqueeze(0).expand_as(tokens)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), diagonal=1)
    out: torch.Tensor = net(tokens, positions, mask, labels=targets)
    return out


def _loss(case: Case, out: torch.Tensor) -> tuple[Any, ...]:
    if case.per_token:
        loss = out.float().sum()
        return loss, torch.tensor(out.numel(), dtype=torch.int), {"loss": loss.detach()}
    loss = out.float().mean()
    return loss, {"loss": loss.detach()}


def train_step(case: Case, models: list[Any], optimizer: Any, step: int) -> tuple[list[float], tuple[Any, ...]]:
    """Forward and backward of all micro-batches: the losses. Then the optimizer's step: what it returns."""
    losses = backward(case, models, optimizer, step)
    return losses, optimizer.step()


def backward(case: Case, models: list[Any], optimizer: Any, step: int) -> list[float]:
    """Forward and backward of all micro-batches, gradients aggregated."""
    for model in models:
        model.zero_grad_buffer()
    optimizer.zero_grad()

    def forward_step(data: Iterator[Any], net: Any) -> Any:
        return forward(net, next(data)), partial(_loss, case)

    shard = parallel_state.get_data_parallel_rank()

    def batches() -> Iterator[Any]:
        return iter([batch(step, shard, micro) for micro in range(case.micro)])

    # Experts are spread over data-parallel ranks; `forward_backward` takes the configuration from the model.
    given: Any = [batches() for _ in models] if case.vpp else batches()
    done = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=given,
        model=models if case.vpp else models[0],
        num_microbatches=case.micro,
        seq_length=LENGTH,
        micro_batch_size=BATCH,
        forward_only=False,
    )
    return [float(one["loss"]) for one in done]


def shards(models: list[Any]) -> dict[int, tuple[int, int]]:
    """The elements of each parameter in this rank's part of the gradient buffers, by the parameter's id: every bucket
    is cut evenly by rank."""
    found: dict[int, tuple[int, int]] = {}
    # Within one instance of the optimizer.
    dense = parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True)
    experts = parallel_state.get_expert_data_parallel_group()
    for model in models:
        for group, buffers in ((dense, model.buffers), (experts, model.expert_parallel_buffers)):
            for buffer in buffers:
                for bucket in buffer.buckets:
                    width = bucket.grad_data.numel() // distributed.get_world_size(group)
                    low = bucket.offset + distributed.get_rank(group) * width
                    for parameter in bucket.params_list:
                        begin, end, _ = buffer.param_index_map[parameter]
                        start, stop = max(begin, low), min(end, low + width)
                        if start < stop:
                            found[id(parameter)] = (start - begin, stop - begin)
    return found
