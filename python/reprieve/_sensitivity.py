"""Which key matters most: Sobol's indices of a metric, by SALib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _reprieve
from ._assign import toml
from ._sweep import sweep


@dataclass(frozen=True)
class Indices:
    """Of each key, the share of the metric's variance from it alone (``first``), and with its interactions (``total``).

    ``*_conf`` are half widths of 95 % intervals, by bootstrap (SALib).
    """

    keys: Sequence[str]
    first: Sequence[float]
    first_conf: Sequence[float]
    total: Sequence[float]
    total_conf: Sequence[float]
    runs: int

    def __str__(self) -> str:
        order = sorted(range(len(self.keys)), key=lambda at: -self.total[at])
        lines = [
            f"{self.keys[at]:<40} first-order {self.first[at]:5.2f} ± {self.first_conf[at]:.2f}   total {self.total[at]:5.2f} ± {self.total_conf[at]:.2f}"
            for at in order
        ]
        return "\n".join([f"{self._answer(order)} ({self.runs} rows):", *lines])

    def _answer(self, order: Sequence[int]) -> str:
        """Which key matters most, if the intervals of the total indices tell it from the next one."""
        first, *others = order
        least = self.total[first] - self.total_conf[first]
        if all(least > self.total[other] + self.total_conf[other] for other in others):
            return f"{self.keys[first]} matters most"
        return "Too few points to tell which key matters most"


def sensitivity(
    scenario: str,
    axes: Mapping[str, Sequence[Any]],
    metric: str,
    *,
    condition: str | None = None,
    points: int = 64,
    seed: int = 1,
    log: bool = True,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Indices:
    """Runs a scenario's text at Saltelli's points and gives the indices of a metric's logarithm (``log=False``: of itself).

    Repetitions of a point are averaged first, so their variance is not in it.

    ``axes`` are keys, each with a tuple of its least and its largest value, or with a list of values. ``points`` should be a power of two;
    there are ``points * (len(axes) + 2)`` points, each with ``run.repeat`` runs under the condition, by default that which an axis
    names, else the last one. Points that are the same are run once.
    """
    import math

    import numpy
    import pyarrow
    from SALib.analyze import sobol as analyse
    from SALib.sample import sobol as sample

    kinds = {key: _Axis(values) for key, values in axes.items()}
    problem = {"num_vars": len(axes), "names": list(axes), "bounds": [[0.0, 1.0]] * len(axes)}
    drawn = sample.sample(problem, points, calc_second_order=False, seed=seed)
    columns = {key: [axis.at(part) for part in drawn[:, at]] for at, (key, axis) in enumerate(kinds.items())}
    named = [key.split(".")[1] for key in axes if key.startswith("conditions.") and "*" not in key]
    name = condition or (named or _reprieve.conditions(scenario))[-1]
    space = ["[space]", 'sampling = "list"', f"conditions = [{toml(name)}]"]
    for number, (key, values) in enumerate(columns.items()):
        space += [f"[space.axes.x{number}]", f"key = {toml(key)}", f"values = {toml(values)}"]
    text = scenario + "\n" + "\n".join(space) + "\n"
    if len(text) > 1 << 20:
        raise ValueError(f"{len(drawn)} points of {len(axes)} axes are more than a scenario of 1 MiB can hold; take fewer points")
    ran = sweep(text, folder=folder, **options)
    table = pyarrow.table(ran)
    rows = table.select(["point", metric]).to_pylist()
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[metric] is None:
            raise ValueError(f"{metric} was not measured at point {row['point']}")
        found.setdefault(row["point"], []).append(math.log(row[metric]) if log else row[metric])
    means = numpy.array([sum(found[point]) / len(found[point]) for point in range(len(drawn))])
    indices = analyse.analyze(problem, means, calc_second_order=False, seed=seed)
    first, first_conf, total, total_conf = ([float(part) for part in indices[name]] for name in ("S1", "S1_conf", "ST", "ST_conf"))
    return Indices(list(axes), first, first_conf, total, total_conf, runs=len(rows))


class _Axis:
    """From a part, 0 to 1, to a value of the key."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.is_range = isinstance(values, tuple)
        if self.is_range and not (len(values) == 2 and values[0] < values[1]):
            raise ValueError(f"{values} is no range; give the least and the largest value, or a list of values")
        self.whole = all(isinstance(value, int) for value in values)

    def at(self, part: float) -> Any:
        if not self.is_range:
            return self.values[min(int(part * len(self.values)), len(self.values) - 1)]
        low, high = self.values
        # Each whole number is as likely as any other.
        return min(low + int((high + 1 - low) * part), high) if self.whole else float(f"{low + (high - low) * part:.6g}")
