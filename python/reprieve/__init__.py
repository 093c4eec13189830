"""Simulates what a descheduled vCPU does to RCU, memory and latencies: one run, or a sweep of a million.

    import reprieve
    result = reprieve.run("rcu-memory")
    print(result.headline)
    result                          # in a notebook: the page with its figures
    polars.DataFrame(result)        # or pandas.DataFrame.from_arrow, pyarrow.table
"""

from __future__ import annotations

from ._reprieve import ScenarioError, SweepError, __version__
from ._result import Result, load, run, scenarios, text
from ._sensitivity import Indices, sensitivity
from ._sweep import Sweep, sweep

__all__ = [
    "Indices",
    "Result",
    "ScenarioError",
    "Sweep",
    "SweepError",
    "__version__",
    "load",
    "run",
    "scenarios",
    "sensitivity",
    "sweep",
    "text",
]
