"""Trainings to measure the rule `Baseline` with: `baseline_runs.py OUTPUT --seeds 0 1 2 --plants none scale zero`.

Each training gets a directory `<plant>-seed<seed>`. What the rule says of them:
`cargo run -p trainmon-baseline --example held_against GOLDEN RUN...`.
"""

import argparse
from pathlib import Path

import trainmon  # noqa: F401 - before anything of the frameworks

# isort: split
import torch

from support.dropout import PLANTS, Training
from support.ranks import finish

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("output", type=Path)
parser.add_argument("--seeds", type=int, nargs="+", default=[0])
parser.add_argument("--plants", nargs="+", default=["none"], choices=["none", *PLANTS])
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--at", type=int, default=150)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--order", type=int, default=0)
parser.add_argument("--weight", default="blocks.2.fc.weight")
given = parser.parse_args()
torch.set_num_threads(1)
for plant in given.plants:
    for seed in given.seeds:
        place = given.output / f"{plant}-seed{seed}"
        if not place.exists():
            training = Training(
                seed=seed,
                steps=given.steps,
                dropout=given.dropout,
                order=given.order,
                plant="" if plant == "none" else plant,
                at=given.at,
                weight=given.weight,
            )
            training.run({"output_dir": str(place), "queue_steps": 4096})
finish()
