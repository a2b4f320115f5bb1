"""The first look: what is imported, from where, and whether a training on the device can be watched at all."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

from device_kit.machine import version_of
from device_kit.report import Report
from device_kit.setting import Setting

STEPS = 20

_VERSION = "import of trainmon"
_OTHERS = "msprobe, to compare with"
_WATCH = f"trainmon.watch, {STEPS} steps"
_KERNELS = "loading the kernels, compiled by the driver"
TITLES = (_VERSION, _OTHERS, _KERNELS, _WATCH)

#: What the first minute of documentation promises to measure.
_KINDS = ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated")


def run(setting: Setting, report: Report) -> None:
    """All of it."""
    with report.guard(_VERSION):
        import trainmon

        report.measured(_VERSION, trainmon.__version__, detail=str(Path(trainmon.__file__).parent))
    with report.guard(_OTHERS):
        _look_for_msprobe(report)
    with report.guard(_KERNELS):
        _load(setting, report)
    with report.guard(_WATCH):
        _watch(setting, report)


def _load(setting: Setting, report: Report) -> None:
    """The first load on a machine: the driver keeps what it compiled."""
    import torch
    from trainmon._trainmon import DeviceKernels

    if not setting.is_cuda:
        report.skipped(_KERNELS, "they are for CUDA devices")
        return
    torch.ones(1, device=setting.device)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        DeviceKernels(torch.cuda.current_device())
        seconds.append(time.perf_counter() - start)
    report.measured(_KERNELS, round(seconds[0], 3), "s", f"once more: {seconds[1]:.3f} s")


def _look_for_msprobe(report: Report) -> None:
    """Not imported: that takes seconds, and the parts that compare with it tell what came of it."""
    found = importlib.util.find_spec("msprobe")
    if found is None or found.origin is None:
        report.skipped(_OTHERS, "it is not installed: nothing is compared with it")
    else:
        report.measured(_OTHERS, version_of("mindstudio-probe") or "unknown", detail=str(Path(found.origin).parent))


def _watch(setting: Setting, report: Report) -> None:
    """As a user has it: no config, the public function; and every row, also those that repeat others."""
    import torch
    import trainmon

    from device_kit import small_nets
    from device_kit.watching import heard, rows_of

    net, said = small_nets.gpt(setting), list[str]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    place = setting.scratch / "watch"
    with heard(said), trainmon.watch(net, optimizer, output_dir=str(place), quiet=True, repeat_rows=True) as watch:
        for batch in small_nets.batches(setting, STEPS):
            small_nets.step(net, optimizer, batch)
            # A device that is steps behind is given up, and that is not what is asked here.
            setting.synchronize()
        account = watch.close()
    steps = {kind: {int(row["step"]) for row in rows_of(place, kind)} for kind in _KINDS}
    first = {"exp_avg": 1, "exp_avg_sq": 1}
    lacking = [kind for kind in _KINDS if steps[kind] != set(range(first.get(kind, 0), STEPS))]
    counts = watch.monitor.counts()
    wrong = [*said, *(f"{kind} has not every step" for kind in lacking)]
    if counts["not_sampled"] or counts["dropped"]:
        wrong.append(f"{counts['not_sampled']} not measured, {counts['dropped']} dropped")
    report.check(_WATCH, not wrong, counts["observed"], "tensors", "; ".join(wrong) or account.replace("\n", "; "))
