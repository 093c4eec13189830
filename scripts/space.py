"""Indices of the scenario rcu-space, and the means of its table, as JSON. See scripts/space."""

import json
import math
import shutil
import sys
from pathlib import Path

import numpy
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
axes = ["overcommit", "slice_us", "vcpus"]
told = [(metric, "mean") for metric in (*METRICS, "throughput_per_s", "gp_count")]
means = table.group_by(["condition", *axes]).aggregate(told).sort_by([(key, "ascending") for key in ["condition", *axes]]).to_pylist()


def of(condition: str, metric: str) -> numpy.ndarray:
    """The logarithm of a metric's means, over the axes."""
    cells = [math.log(row[f"{metric}_mean"]) for row in means if row["condition"] == condition]
    return numpy.array(cells).reshape([len(values) for values in KEYS.values()])


def decomposed(cells: numpy.ndarray) -> dict[str, dict[str, float]]:
    """The shares of the variance over the whole grid, which needs no sample: an analysis of variance."""
    every = tuple(range(cells.ndim))
    shares = {}
    for at, axis in enumerate(axes):
        others = tuple(other for other in every if other != at)
        shares[axis] = {
            "first": cells.mean(axis=others).var() / cells.var(),
            "total": cells.var(axis=at).mean() / cells.var(),
        }
    return shares


grid = {metric: decomposed(of("overcommitted", metric)) for metric in METRICS}
grid["footprint_peak_bytes, ratio to the baseline"] = decomposed(
    of("overcommitted", "footprint_peak_bytes") - of("baseline", "footprint_peak_bytes")
)
print(
    json.dumps(
        {
            "command": "scripts/space",
            "simulator": table.column("simulator")[0].as_py(),
            "runs": table.num_rows,
            "failed": sum(error is not None for error in table.column("error").to_pylist()),
            "of": "the logarithm of the mean of three repetitions, over the values of the grid",
            "grid": grid,
            "salib": indices,
            "salib_of": f"{POINTS} points of Saltelli's sample of that grid; [index, half width of its 95 % interval by bootstrap]",
            "means": means,
        },
        indent=1,
    )
)
