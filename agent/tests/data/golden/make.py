"""Records the cases of `cases.tar.gz` with the real msprobe: `python make.py [DIRECTORY]` (needs mindstudio-probe).

Without a directory the archive is written anew. With one the cases are unpacked there, in the shape that the golden
tests read (`TRAINMON_GOLDEN=DIRECTORY`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUN_CASES = HERE.parents[2] / "python" / "tests" / "scripts" / "run_msprobe_cases.py"

OPS = ["mean", "zeros", "max", "norm", "min", "nans"]
ALL = {"wg_distribution": True, "mv_distribution": True, "param_distribution": True}
ACTIVATIONS = {"xy_distribution": True, "all_xy": True}


def v1(net: str, seed: int, steps: int, optimizer: str = "adamw", *, facts: Any = None, **config: Any) -> dict[str, Any]:
    """A case of `TrainerMon`."""
    given = {"monitor": "v1", "net": net, "seed": seed, "optimizer": optimizer, "steps": steps, **(facts or {})}
    return {**given, "config": {"targets": {}, "format": "csv", "ops": OPS, **config}}


def v2(net: str, seed: int, steps: int, optimizer: str = "adamw", *, facts: Any = None, **config: Any) -> dict[str, Any]:
    """A case of `TrainerMonitorV2`: every monitor."""
    ops = ["nans", "norm", "mean", "max", "min"]
    monitors = {name: {"enabled": True, "ops": ops} for name in ("module", "weight_grad", "optimizer", "param")}
    given = {"monitor": "v2", "net": net, "seed": seed, "optimizer": optimizer, "steps": steps, **(facts or {})}
    return {**given, "config": {"framework": "pytorch", "format": "csv", "monitors": monitors, **config}}


def alert(*rules: tuple[str, float | None]) -> dict[str, Any]:
    """Rules, each with its threshold."""
    written = [{"rule_name": name, **({} if args is None else {"args": {"threshold": args}})} for name, args in rules]
    return {"alert": {"rules": written, "dump": True}}


CASES: dict[str, dict[str, Any]] = {
    # Every kind, and a stream that several modules read; whole numbers go in.
    "v1_residual_all": v1("residual", 101, 3, ndigits=9, step_count_per_record=2, **ALL, **ACTIVATIONS),
    "v1_residual_acc3": v1(
        "residual", 102, 2, facts={"grad_acc": 3}, ndigits=11, wg_distribution=True, monitor_mbs_grad=True, **ACTIVATIONS
    ),
    "v1_pair_xy": v1("pair", 103, 3, "sgdm", ops=["norm", "min"], ndigits=14, **ACTIVATIONS),
    # Shares of odd numbers of elements, in msprobe's default digits and in many.
    "v1_odd_direction": v1("odd", 104, 6, mg_direction=True, wg_distribution=True),
    "v1_odd_direction_16": v1("odd", 105, 5, mg_direction=True, mv_distribution=True, ndigits=16, ops=["norm", "mean"]),
    "v1_odd_zeros": v1("odd", 106, 3, "sgdm", eps=0.02, ops=["zeros"], ndigits=5, **ALL, **ACTIVATIONS),
    # One expert or the other: msprobe repeats old numbers.
    "v1_experts_all": v1("experts", 107, 6, ndigits=8, step_count_per_record=3, **ALL, **ACTIVATIONS),
    # Findings: statistics in other orders, without `zeros`, beside inputs that have no gradient.
    "v1_residual_nan": v1(
        "residual",
        108,
        4,
        facts={"inject": {"kind": "nan_act", "module": "narrow.0", "step": 2}},
        ops=["norm", "nans", "max"],
        ndigits=10,
        wg_distribution=True,
        **ACTIVATIONS,
        **alert(("AnomalyNan", 50.0)),
    ),
    "v1_pair_nan_turbulence": v1(
        "pair",
        109,
        4,
        "sgdm",
        facts={"inject": {"kind": "nan_act", "module": "conv", "step": 1}, "grad_acc": 2},
        ops=["max", "mean", "min"],
        ndigits=10,
        param_distribution=True,
        **ACTIVATIONS,
        **alert(("AnomalyTurbulence", 0.3), ("AnomalyNan", None)),
    ),
    "v1_odd_spike": v1(
        "odd",
        110,
        5,
        facts={"inject": {"kind": "grad_scale", "step": 3, "factor": 30.0}, "grad_acc": 2},
        ops=["min", "norm"],
        ndigits=7,
        wg_distribution=True,
        **alert(("AnomalyTurbulence", 0.8), ("AnomalyNan", 2.0)),
    ),
    # The dynamic mode, on from the start, and changed once more.
    "v1_odd_dynamic": v1(
        "odd",
        111,
        7,
        facts={
            "dynamic": True,
            "config_events": [{"step": 4, "set": {"dynamic_on": True, "collect_times": 1, "ops": ["mean"]}}],
        },
        dynamic_on=True,
        collect_times=2,
        ndigits=9,
        wg_distribution=True,
        param_distribution=True,
    ),
    "v1_pair_bf16": v1("pair", 112, 2, facts={"dtype": "bf16"}, ndigits=15, **ALL, **ACTIVATIONS),
    "v1_odd_f16": v1("odd", 113, 2, "sgdm", facts={"dtype": "f16"}, ndigits=12, **ALL, **ACTIVATIONS),
    "v1_pair_window": v1(
        "pair", 114, 9, start_step=2, step_interval=3, collect_times=2, ndigits=13, step_count_per_record=4, **ALL
    ),
    "v2_residual_acc2": v2("residual", 115, 2, facts={"grad_acc": 2}),
    "v2_experts_sgdm": v2("experts", 116, 4, "sgdm", step_count_per_record=3),
    "v2_pair_window": v2("pair", 117, 7, start_step=1, stop_step=6, step_interval=2),
}


def record(place: Path) -> None:
    """Runs every case below `place`."""
    directories = []
    for name, facts in CASES.items():
        directory = place / "01_monitor" / name
        directory.mkdir(parents=True)
        (directory / "case.json").write_text(json.dumps(facts, indent=1) + "\n")
        directories.append(str(directory))
    shutil.copytree(HERE / "tools", place / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, str(RUN_CASES), str(place / "tools"), *directories], check=True)
    for directory in directories:
        # The time and the id change from run to run.
        for run in (Path(directory) / "msprobe_out").glob("*-rank0-*"):
            run.rename(run.with_name("Jan01_00-00-00-rank0-00000000"))


def pack(place: Path, archive: Path) -> None:
    """The cases as an archive that is the same for the same contents."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
        return info

    with tarfile.open(archive, "w:gz", format=tarfile.USTAR_FORMAT) as packed:
        for name in CASES:
            packed.add(place / "01_monitor" / name, f"01_monitor/{name}", filter=plain)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            record(Path(temporary))
            pack(Path(temporary), HERE / "cases.tar.gz")
