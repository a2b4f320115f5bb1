"""Trains the tiny GPT in parallel, unwatched and watched: `parallel_train.py OUTPUT STEPS CASE...`.

Every rank checks for itself: that the bits are the same, that nothing of ours was a collective, that what was shown is
what the reference says, and that everything is put back at the end.
"""

import sys
from pathlib import Path

import trainmon  # before anything of the frameworks

# isort: split
import torch
from torch import distributed
from torch.distributed.fsdp import FullyShardedDataParallel

from support import parallel, tiny
from support.ranks import finish
from support.torch_inside import hooks_of_tensor
from support.ways import WAYS
from trainmon.frameworks.fsdp2 import ADDS_UP, ENDS_BACKWARD


def patched():
    from torch.distributed.fsdp import _runtime_utils
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    places = [
        (_runtime_utils, "_post_backward_reshard"),
        (FSDPParam, ADDS_UP) if hasattr(FSDPParam, ADDS_UP) else (FSDPParamGroup, ENDS_BACKWARD),
        (FullyShardedDataParallel, "clip_grad_norm_"),
        (torch.nn.utils, "clip_grad_norm_"),
        (torch.amp.GradScaler, "step"),
    ]
    return [vars(owner)[name] for owner, name in places]


def check(base, name, steps):
    way = WAYS[name]()
    plain = way.wrap(tiny.model())
    start = parallel.collectives()
    expected = parallel.train(plain, parallel.optimizer_of(plain), way, steps)
    issued = parallel.collectives() - start

    model = way.wrap(tiny.model())
    optimizer = parallel.optimizer_of(model)
    original = patched()
    start = parallel.collectives()
    watch = trainmon.watch(
        model, optimizer, config=parallel.CONFIG, output_dir=str(base / name), grad_acc_steps=way.micro_batches
    )
    found = parallel.train(model, optimizer, way, steps)
    report = watch.close()
    assert parallel.same(expected, found), f"{name}: the watch changed the training"
    assert issued > 0
    assert parallel.collectives() - start == issued, f"{name}: the watch issued collectives"
    assert "0 dropped" in report, report
    assert patched() == original, f"{name}: not everything was put back"
    assert not any(map(hooks_of_tensor, model.parameters()))
    held = parallel.held_by_this_rank(WAYS[name.replace("_flat", "")]())
    parallel.check_rows(base / name, way, steps, held, every_micro_batch=way.micro_batches > 1)


distributed.init_process_group("gloo")
_, output, steps, *cases = sys.argv
for case in cases:
    check(Path(output), case, int(steps))
    if distributed.get_rank() == 0:
        print(f"checked {case}", flush=True)
finish()
