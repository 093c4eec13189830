"""Indices of the scenario rcu-space, and the means of its table, as JSON. See scripts/space."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet

import reprieve

KEYS = {
    "conditions.overcommitted.overcommit": [1.25, 1.5, 2, 2.5, 3, 4],
    "host.slice_us": [500, 1000, 2000, 4000, 8000, 16000],
    "guest.vcpus": [2, 4, 8, 16],
}
METRICS = ("gp_p99_ns", "footprint_peak_bytes")
POINTS = 1024

folder = Path(sys.argv[1])
# The points are those of the grid, so nothing is run again.
parts = folder / "indices" / "parts"
shutil.copytree(folder / "grid" / "parts", parts, dirs_exist_ok=True)
text = reprieve.text("rcu-space").split("[space.axes")[0]
indices = {}
for metric in METRICS:
    found = reprieve.sensitivity(text, KEYS, metric, condition="overcommitted", points=POINTS, folder=folder / "indices")
    print(f"{metric}\n{found}", file=sys.stderr)
    indices[metric] = {
        key: {"first": [found.first[at], found.first_conf[at]], "total": [found.total[at], found.total_conf[at]]}
        for at, key in enumerate(found.keys)
    }
table = pyarrow.parquet.read_table(folder / "grid" / "table.parquet")
keys = ["condition", "overcommit", "slice_us", "vcpus"]
means = table.group_by(keys).aggregate([(metric, "mean") for metric in METRICS]).sort_by([(key, "ascending") for key in keys])
print(
    json.dumps(
        {
            "command": "scripts/space",
            "simulator": table.column("simulator")[0].as_py(),
            "runs": table.num_rows,
            "failed": sum(error is not None for error in table.column("error").to_pylist()),
            "of": f"the logarithm, over the grid's values, {POINTS} points of Saltelli's sample; [index, half width of its 95 % interval]",
            "indices": indices,
            "means": means.to_pylist(),
        },
        indent=1,
    )
)
