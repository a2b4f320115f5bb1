"""Writes the checkpoints beside this file, one small model in every layout: `python generate.py`.

Needs torch, transformers and deepspeed; runs on the CPU. `changed_norm.pt` and `bfloat16.pt` are `plain.pt` changed;
everything else but Megatron's holds its very weights. Megatron's layout is written by hand (its training package is on no
registry): random weights as one file, and cut up for tensor, pipeline, virtual pipeline and expert ranks.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

MADE = pathlib.Path("made")
WORLD = 2
# Tensor-parallel ranks, and such times data-parallel ones.
TENSOR_RANKS, GRID = 2, 4


def tiny() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=13,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


class Attack:
    """Whoever unpickles it executes a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def start(rank: int, port: int, world: int = WORLD) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "DS_ACCELERATOR": "cpu",
        # DeepSpeed compiles a helper with the ninja of this environment.
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    dist.init_process_group("gloo", rank=rank, world_size=world)


def save_dcp(rank: int) -> None:
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    start(rank, 29611)
    model = tiny()
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dcp.save(model.state_dict(), checkpoint_id=str(MADE / "fsdp"))
    dist.destroy_process_group()


def save_deepspeed(rank: int, stage: int) -> None:
    start(rank, 29620 + stage)
    save_by_engine(rank, stage, f"deepspeed_zero{stage}", tiny())


def save_autotp(rank: int) -> None:
    """DeepSpeed cuts up the model itself, and notes how: the output layer's 13 rows as 7 and 6."""
    start(rank, 29630)
    save_by_engine(rank, 1, "deepspeed_autotp", tiny(), {"tensor_parallel": {"autotp_size": WORLD}})


def save_by_engine(
    rank: int, stage: int, directory: str, model: torch.nn.Module, more: dict | None = None, **arguments: object
) -> None:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    } | (more or {})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, **arguments)
    client_state = {"args": argparse.Namespace(swiglu=True)} if arguments else {}
    engine.save_checkpoint(str(MADE / directory), tag="global_step0", client_state=client_state)
    dist.barrier()
    if rank == 0:
        # Programs that DeepSpeed lays beside its files.
        made = MADE / directory
        for program in made.glob("*.py"):
            program.unlink()
        # Before ZeRO-3 the weights are whole beside the partitions.
        for partition in made.glob("*/*_optim_states.pt") if stage < 3 else ():
            partition.unlink()
    dist.destroy_process_group()


class Grid:
    """Which rank is which, as Megatron tells DeepSpeed: tensor-parallel ranks beside each other."""

    def __init__(self, rank: int) -> None:
        self.tensor, self.data = rank % TENSOR_RANKS, rank // TENSOR_RANKS
        rows = [list(range(first, first + TENSOR_RANKS)) for first in range(0, GRID, TENSOR_RANKS)]
        columns = [list(range(first, GRID, TENSOR_RANKS)) for first in range(TENSOR_RANKS)]
        self.tensor_groups = [dist.new_group(row) for row in rows]
        self.data_groups = [dist.new_group(column) for column in columns]

    def get_model_parallel_rank(self) -> int:
        return self.tensor

    def get_model_parallel_world_size(self) -> int:
        return TENSOR_RANKS

    def get_model_parallel_group(self) -> dist.ProcessGroup:
        return self.tensor_groups[self.data]

    def get_data_parallel_rank(self) -> int:
        return self.data

    def get_data_parallel_world_size(self) -> int:
        return GRID // TENSOR_RANKS

    def get_data_parallel_group(self) -> dist.ProcessGroup:
        return self.data_groups[self.tensor]

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group


def old_megatron_weights() -> dict[str, torch.Tensor]:
    """Under the names of Megatron-DeepSpeed; a bias of nothing but zeros is cut up too."""
    torch.manual_seed(13)
    hidden = 4
    weights = {"language_model.embedding.word_embeddings.weight": torch.randn(6, hidden)}
    for layer in range(2):
        at = f"language_model.encoder.layers.{layer}."
        weights[at + "input_layernorm.weight"] = torch.randn(hidden)
        weights[at + "self_attention.query_key_value.weight"] = torch.randn(3 * hidden, hidden)
        weights[at + "self_attention.query_key_value.bias"] = torch.zeros(3 * hidden)
        weights[at + "self_attention.dense.weight"] = torch.randn(hidden, hidden)
        weights[at + "self_attention.dense.bias"] = torch.randn(hidden)
        weights[at + "mlp.dense_h_to_4h.weight"] = torch.randn(4 * hidden, hidden)
        weights[at + "mlp.dense_4h_to_h.weight"] = torch.randn(hidden, 2 * hidden)
    return weights


def module_of(weights: dict[str, torch.Tensor]) -> torch.nn.Module:
    root = torch.nn.Module()
    for name, value in weights.items():
        *path, leaf = name.split(".")
        module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(leaf, torch.nn.Parameter(value.clone()))
    return root


def save_deepspeed_grid(rank: int, stage: int) -> None:
    start(rank, 29640 + stage, GRID)
    weights = {
        name: cut(name, value, rank % TENSOR_RANKS, TENSOR_RANKS) for name, value in old_megatron_weights().items()
    }
    save_by_engine(rank, stage, f"deepspeed_tp2_zero{stage}", module_of(weights), mpu=Grid(rank))


def megatron_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(12)
    hidden, experts, layers = 4, 2, 4
    weights = {"embedding.word_embeddings.weight": torch.randn(6, hidden)}
    for layer in range(layers):
        at = f"decoder.layers.{layer}."
        weights[at + "self_attention.linear_qkv.layer_norm_weight"] = torch.randn(hidden)
        weights[at + "self_attention.linear_qkv.weight"] = torch.randn(3 * hidden, hidden)
        weights[at + "self_attention.linear_proj.weight"] = torch.randn(hidden, hidden)
        weights[at + "mlp.router.weight"] = torch.randn(experts, hidden)
        for expert in range(experts):
            one = at + f"mlp.experts.local_experts.{expert}."
            weights[one + "linear_fc1.weight"] = torch.randn(8, hidden)
            weights[one + "linear_fc2.weight"] = torch.randn(hidden, 4)
    weights["decoder.final_layernorm.weight"] = torch.randn(hidden)
    weights["output_layer.weight"] = torch.randn(6, hidden)
    return weights


def cut(name: str, value: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    if name.endswith("layer_norm_weight"):
        return value
    if any(part in name for part in ("linear_fc1", "dense_h_to_4h")):
        gate, up = value.chunk(2, 0)
        return torch.cat([gate.chunk(size, 0)[rank], up.chunk(size, 0)[rank]])
    if any(part in name for part in ("linear_qkv", "query_key_value", "word_embeddings", "output_layer")):
        return value.chunk(size, 0)[rank].clone()
    if any(part in name for part in ("linear_proj", "linear_fc2", "attention.dense.weight", "dense_4h_to_h")):
        return value.chunk(size, 1)[rank].clone()
    return value


def save_megatron(directory: str, tp: int, pp: int, vpp: int, ep: int, *, is_old: bool = False) -> None:
    """Layers go to virtual stages first, then to pipeline ranks, as Megatron interleaves them."""
    layers, experts = 4, 2
    per_chunk, per_expert_rank = layers // (pp * vpp), experts // ep
    for t in range(tp):
        for p in range(pp):
            for e in range(ep):
                state: dict[str, object] = {
                    "args": argparse.Namespace(
                        tensor_model_parallel_size=tp,
                        pipeline_model_parallel_size=pp,
                        expert_model_parallel_size=ep,
                        num_experts=experts,
                        swiglu=True,
                    ),
                    "iteration": 3,
                }
                for v in range(vpp):
                    first = (v * pp + p) * per_chunk
                    part = {}
                    for name, value in megatron_weights().items():
                        new = name
                        if ".layers." in name:
                            layer = int(name.split(".layers.")[1].split(".")[0])
                            if not first <= layer < first + per_chunk:
                                continue
                            new = new.replace(f".layers.{layer}.", f".layers.{layer - first}.")
                        elif (p, v) != ((0, 0) if name.startswith("embedding") else (pp - 1, vpp - 1)):
                            continue
                        if "local_experts." in name:
                            expert = int(name.split("local_experts.")[1].split(".")[0])
                            if expert // per_expert_rank != e:
                                continue
                            new = new.replace(f"local_experts.{expert}.", f"local_experts.{expert % per_expert_rank}.")
                        part[new] = cut(name, value, t, tp)
                    state[f"model{v}" if vpp > 1 else "model"] = part
                name = f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
                place = MADE / directory / "iter_0000003" / name
                place.mkdir(parents=True)
                torch.save(state, place / "model_optim_rng.pt", _use_new_zipfile_serialization=not is_old)
    (MADE / directory / "latest_checkpointed_iteration.txt").write_text("3")


def main() -> None:
    # Distributed checkpoints note the path they were given.
    os.chdir(pathlib.Path(__file__).parent)
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir()
    model = tiny()
    torch.save(model.state_dict(), MADE / "plain.pt")
    changed = model.state_dict() | {"model.norm.weight": model.model.norm.weight.detach() * 1.001}
    torch.save(changed, MADE / "changed_norm.pt")
    torch.save({**model.state_dict(), "extra": Attack()}, MADE / "attack_within.pt")
    torch.save(
        {"state_dict": {name: value.bfloat16() for name, value in model.state_dict().items()}, "epoch": 1},
        MADE / "bfloat16.pt",
    )
    model.save_pretrained(MADE / "hf", max_shard_size="3KB")
    for name in ("config.json", "generation_config.json"):
        (MADE / "hf" / name).unlink(missing_ok=True)
    save_megatron("megatron_one", 1, 1, 1, 1)
    save_megatron("megatron_tp2_pp2_ep2", 2, 2, 1, 2)
    save_megatron("megatron_pp2_vpp2", 1, 2, 2, 1)
    save_megatron("megatron_ep2", 1, 1, 1, 2, is_old=True)
    for function, arguments in ((save_dcp, ()), (save_deepspeed, (2,)), (save_deepspeed, (3,))):
        mp.spawn(function, args=arguments, nprocs=WORLD)
    mp.spawn(save_autotp, nprocs=WORLD)
    torch.save(old_megatron_weights(), MADE / "deepspeed_tp2_whole.pt")
    for stage in (1, 3):
        mp.spawn(save_deepspeed_grid, args=(stage,), nprocs=GRID)


if __name__ == "__main__":
    sys.exit(main())
