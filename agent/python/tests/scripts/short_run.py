"""A short monitored training with nothing but torch and trainmon: `short_run.py DIRECTORY [plain|ddp|fsdp1 ...]`.

Prints torch's version when gradients, moments, the global norm and the bits of the training are what they must be.
"""

import csv
import math
import os
import sys
from pathlib import Path

import torch
from torch import nn

import trainmon
from support.configs import EVERYTHING

PLACE = Path(sys.argv[1])
CONFIG = {
    "ops": ["min", "max", "mean", "norm", "nans"],
    **EVERYTHING,
    "cc_distribution": {"enable": True},
}
STEPS = 5


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


def wrap(net: nn.Module, way: str) -> nn.Module:
    if way == "plain":
        return net
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", init_method=f"file://{PLACE}/store", rank=0, world_size=1)
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))


def train(watched: bool, way: str) -> list[torch.Tensor]:
    net = wrap(build(), way)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    watch = trainmon.watch(net, optimizer, config=CONFIG, output_dir=str(PLACE / way)) if watched else None
    generator = torch.Generator().manual_seed(1)
    norms = []
    for _ in range(STEPS):
        if way != "plain":
            torch.distributed.all_reduce(torch.ones(3))
        optimizer.zero_grad()
        net(torch.randn(8, 16, generator=generator)).square().mean().backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)))
        optimizer.step()
    if watch is not None:
        report = watch.close()
        assert "0 dropped" in report, report
        check(PLACE / way, norms)
        if way != "plain":
            check_operations(PLACE / way)
    return [one.detach().clone() for one in net.parameters()]


def run_of(base: Path) -> Path:
    (run,) = (path for path in base.glob("*/rank_0") if not path.parent.is_symlink())
    return run


def check_operations(base: Path) -> None:
    """The script's own are there with every torch, DDP's buckets where the dispatcher hands them on."""
    with (run_of(base) / "comm_time_0-9999.csv").open(newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["name"] == "all_reduce/world"]
    calls = [int(row["calls"]) for row in rows]
    sees_buckets = base.name == "ddp" and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)
    assert len(calls) == STEPS and min(calls) >= (2 if sees_buckets else 1), calls


def check(base: Path, norms: list[float]) -> None:
    run = run_of(base)
    with (run / "steps.csv").open(newline="") as opened:
        lines = list(csv.DictReader(opened))
    assert len(lines) == STEPS
    for line, norm in zip(lines, norms, strict=True):
        assert math.isclose(float(line["grad_norm"]), norm, rel_tol=1e-5), (line["grad_norm"], norm)
        assert math.isclose(float(line["framework_grad_norm"]), norm, rel_tol=1e-5)
    for kind in ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated", "actv"):
        with (run / f"{kind}_0-9999.csv").open(newline="") as opened:
            rows = [row for row in csv.DictReader(opened) if row["step"] == "4"]
        assert len(rows) >= 4, kind
        assert all(math.isfinite(float(row["norm"])) for row in rows), kind


for way in sys.argv[2:] or ["plain"]:
    with_us, without = train(True, way), train(False, way)
    assert all(torch.equal(a, b) for a, b in zip(with_us, without, strict=True)), way
print(f"torch {torch.__version__}: {' '.join(sys.argv[2:] or ['plain'])}")
sys.stdout.flush()
os._exit(0)
