"""Many runs: a scenario's space, on this machine or on an engine that people have."""

from __future__ import annotations

import os
import tempfile
import uuid
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any

from . import _reprieve
from ._assign import assignments
from ._progress import Bar
from ._result import cpus


# Shards where the number of workers is not known: no machine of fewer stays idle for lack of them.
MOST_IDLE = 64


class Sweep:
    """A folder with a plan and results. Data frames take it as it is: ``polars.DataFrame(sweep)``."""

    def __init__(self, folder: str | os.PathLike[str], keep: object = None) -> None:
        self.folder = Path(folder)
        self._keep = keep  # a temporary folder, which goes with the last reference

    @property
    def status(self) -> dict[str, int]:
        """Numbers of rows, of different runs, and of those that are done or failed."""
        return _reprieve.standing(self.folder)

    def run(
        self, executor: Executor | None = None, *, shards: int | None = None, jobs: int | None = None, progress: bool | None = None
    ) -> Sweep:
        """Does what is not done yet: in this process, or as shards by an executor.

        Without ``shards`` there are 64 of them, or more, up to 1,000, of 100 runs each. The executor's workers need the same folder: a shared file system, or this machine. A shard that fails because its worker died can be
        run again by calling this again; what had finished is kept.
        """
        bar = Bar("runs" if executor is None else "shards", progress)
        call, futures = uuid.uuid4().hex, []
        try:
            if executor is None:
                _reprieve.run_shard(self.folder, "1/1", jobs or cpus(), bar)
            else:
                left = self.status["runs"] - self.status["done"]
                of = min(shards or max(MOST_IDLE, min(1000, left // 100)), max(left, 1))
                futures += [executor.submit(run_shard, str(self.folder), f"{number}/{of}", call) for number in range(1, of + 1)]
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    bar(done, of)
        except BaseException:
            # What has not begun does not begin, and what runs in threads of this process ends at its next run.
            _given_up.add(call)
            for future in futures:
                future.cancel()
            raise
        finally:
            bar.end()
        return self

    def merge(self) -> list[Path]:
        """Writes table.csv and table.parquet; their bytes do not depend on who ran what."""
        if self._keep is not None:
            raise ValueError("the sweep's folder is temporary, and its tables would go with it; give sweep() a folder, or take to_arrow()")
        return [Path(path) for path in _reprieve.merge(self.folder)]

    def to_arrow(self) -> _reprieve.Table:
        """A table with a row for each finished run, sorted by its ID."""
        return _reprieve.table(self.folder)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        status = self.status
        return f"<reprieve.Sweep in {self.folder}: {status['done']} of {status['runs']} runs done, {status['failed']} failed>"


# Calls of Sweep.run that ended by an exception.
_given_up: set[str] = set()


def run_shard(folder: str, shard: str, call: str = "") -> tuple[int, int]:
    """Does a shard with one thread. Executors send this function to their workers."""

    def go_on(done: int, of: int) -> None:
        if call in _given_up:
            raise KeyboardInterrupt

    return _reprieve.run_shard(Path(folder), shard, 1, go_on)


def sweep(
    space: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    folder: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    **overrides: Any,
) -> Sweep:
    """Runs a scenario's ``[space]``: a built-in name, the path of a file, or the text of one.

    With a folder, a later call goes on where this one ended. The executor is any ``concurrent.futures.Executor``: a process pool, or
    Dask's ``client.get_executor()``.
    """
    if folder is None:
        keep = tempfile.TemporaryDirectory(prefix="reprieve-")
        made = Sweep(Path(keep.name) / "sweep", keep)
    else:
        made = Sweep(folder)
    bar = Bar("points", progress)
    try:
        _reprieve.plan(os.fspath(space), assignments(overrides), made.folder, bar)
    finally:
        bar.end()
    return made.run(executor, shards=shards, jobs=jobs, progress=progress)
