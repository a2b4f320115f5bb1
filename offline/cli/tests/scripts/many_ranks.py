"""Writes a run of many ranks, each with a shard of every parameter: `many_ranks.py OUTPUT RANKS PARAMETERS STEPS`.

For measuring `trainmon merge-ranks`. `zero` behind it: each rank has the whole of its share of the parameters, as with
a partitioned optimizer.
"""

import json
import sys
from pathlib import Path

KINDS = ("grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated", "update")


def main() -> None:
    """Writes the run."""
    output, ranks, parameters, steps = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    is_partitioned = "zero" in sys.argv[5:]
    names = [f"module.decoder.layers.{place // 12}.block{place % 12}.projection.weight" for place in range(parameters)]
    for rank in range(ranks):
        directory = output / f"rank_{rank}"
        directory.mkdir(parents=True)
        listed = []
        for place, name in enumerate(names):
            own = ranks if place % ranks == rank else 0
            part = [0, own if is_partitioned else 1]
            entry = {"name": name, "shape": [ranks], "values": part, "gradient": part, "moments": part}
            listed.append(entry)
        has = [name for name, entry in zip(names, listed, strict=True) if entry["values"][1]]
        layout = {"format": 1, "framework": "fsdp2", "rank": rank, "world_size": ranks}
        layout |= {"groups": [[[rank, 1, 1]]], "parameters": listed}
        (directory / "layout.json").write_text(json.dumps(layout, separators=(",", ":")))
        size = ranks if is_partitioned else 1
        for kind in KINDS:
            with (directory / f"{kind}_0-9999.csv").open("w") as file:
                file.write("vpp_stage,name,step,min,max,mean,norm,std,zeros,shape,dtype\n")
                for step in range(steps):
                    for name in has:
                        file.write(f"0,{name},{step},{rank}.0,{rank}.5,{rank}.25,1.5,0.5,0.0,[{size}],torch.float32\n")
    told = {"run": "many", "world_size": ranks, "job": "", "started": "2026-11-20T00:00:00Z"}
    (output / "run.json").write_text(json.dumps(told))


main()
