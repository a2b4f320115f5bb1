"""What Megatron-core's ranks send, traced and recorded: `communication_megatron.py OUTPUT CASE...`."""

import sys
from pathlib import Path

from support import megatron_cpu

megatron_cpu.install()

import torch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from torch import distributed  # noqa: E402

import trainmon  # noqa: E402
from support import communication, runs  # noqa: E402
from support import megatron_gpt as gpt  # noqa: E402
from support.ranks import finish  # noqa: E402

STEPS = 2
CASES = {
    case.name: case
    for case in (
        gpt.Case("plain"),
        gpt.Case("sharded", dist=True, overlap=True, bf16=True, bucket=4000),
        gpt.Case("tensor", tp=2),
        gpt.Case("pipeline", pp=2),
    )
}
CONFIG = {
    "ops": ["norm"],
    "cc_distribution": {"enable": True},
    "journal": {"enabled": True, "size_mb": 64},
    "format": ["csv", "journal"],
}


def trained(case, output=None):
    """Losses and parameters; with an output, watched and traced."""
    gpt.start(case)
    models, optimizer = gpt.build(case)
    watch = None
    if output is not None:
        watch = trainmon.watch(models, optimizer, config=CONFIG, output_dir=str(output), grad_acc_steps=case.micro)
    results = []
    with communication.Trace() as trace:
        for step in range(STEPS):
            results.append(gpt.backward(case, models, optimizer, step))
            optimizer.step()
    parameters = [one.detach().clone() for model in models for one in model.parameters()]
    if watch is not None:
        communication.take_groups(watch)
        report = watch.close()
        assert "0 dropped" in report, report
    return results, parameters, trace


distributed.init_process_group("gloo") if not distributed.is_initialized() else None
_, output, *names = sys.argv
for name in names:
    expected = trained(CASES[name])
    place = Path(output) / name
    found = trained(CASES[name], place)
    assert expected[0] == found[0], f"{name}: the watch changed a loss"
    assert all(torch.equal(a, b) for a, b in zip(expected[1], found[1], strict=True)), f"{name}: a parameter differs"
    # Sends and receives alone: they have no times inside that ranks are compared by.
    pipeline = parallel_state.get_pipeline_model_parallel_group()
    communication.GROUPS["pp"] = tuple(distributed.get_process_group_ranks(pipeline))
    sent, rows = communication.recorded(runs.run_directory(place, distributed.get_rank()))
    missing, more = communication.differences(found[2].sent, sent)
    assert not missing and not more, f"{name}: not seen: {missing[:4]}; nobody sent: {more[:4]}"
    if distributed.get_rank() == 0:
        groups = sorted({row["process_group"] for row in rows})
        print(f"checked {name}: {len(sent)} operations in {groups}", flush=True)
finish()
