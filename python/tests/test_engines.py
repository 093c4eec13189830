"""One space on one machine, on a process pool, and on a real Dask of which a worker is killed: the tables are the same to the byte.

REPRIEVE_TEST_POINTS says how many points the space has; REPRIEVE_TEST_TABLES, where a line with each table's hashes is added, as
crates/reprieve/tests/slurm.rs does (see scripts/engines).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import reprieve

SPACE = Path(__file__).parents[2] / "crates" / "reprieve" / "tests" / "data" / "cluster.toml"
POINTS = int(os.environ.get("REPRIEVE_TEST_POINTS", "300"))


def done(folder: Path, executor: Executor | None, what: str) -> list[bytes]:
    """The tables after the sweep."""
    began = time.monotonic()
    sweep = reprieve.sweep(SPACE, folder=folder, executor=executor, shards=8, space__points=POINTS)
    took = time.monotonic() - began
    tables = [path.read_bytes() for path in sweep.merge()]
    if file := os.environ.get("REPRIEVE_TEST_TABLES"):
        csv, parquet = (hashlib.sha256(table).hexdigest() for table in tables)
        line = {"engine": what, "runs": sweep.status["runs"], "seconds": int(took), "csv_sha256": csv, "parquet_sha256": parquet}
        with open(file, "a", encoding="utf-8") as out:
            print(json.dumps(line), file=out)
    return tables


@contextmanager
def dask_of_two(folder: Path) -> Iterator[tuple[object, list[subprocess.Popen[bytes]]]]:
    """A client of a scheduler with two workers, all of them processes. Nothing starts a worker again that was killed."""
    distributed = pytest.importorskip("distributed")
    at = folder / "scheduler.json"
    log = open(folder / "log", "wb")

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "distributed.cli." + words[0], *words[1:]], stdout=log, stderr=log)

    begun = [start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(at))]
    try:
        while not at.exists():
            time.sleep(0.1)
        space = ("--local-directory", str(folder), "--host", "127.0.0.1", "--no-dashboard")
        begun += [start("dask_worker", "--scheduler-file", str(at), "--no-nanny", "--nthreads", "1", *space) for _ in range(2)]
        with distributed.Client(scheduler_file=str(at), timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, begun[1:]
    finally:
        for process in begun:
            process.kill()
            process.wait()
        log.close()


def kill_in_its_midst(worker: subprocess.Popen[bytes], parts: Path) -> threading.Thread:
    """Kills a worker as soon as a part has some runs and is not whole."""

    def kill() -> None:
        while not any(part.read_bytes().count(b"\n") > 3 for part in parts.glob("*.open")):
            time.sleep(0.02)
        worker.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_the_same_table_on_every_engine_whatever_is_killed(tmp_path: Path) -> None:
    alone = done(tmp_path / "alone", None, "one process")
    with ProcessPoolExecutor(2) as executor:
        assert done(tmp_path / "pool", executor, "a pool of two processes") == alone
    with dask_of_two(tmp_path) as (client, workers):
        killing = kill_in_its_midst(workers[0], tmp_path / "dask" / "parts")
        assert done(tmp_path / "dask", client.get_executor(), "Dask, two workers, one of them killed") == alone
        killing.join()
        assert workers[0].wait(5) == -signal.SIGKILL and workers[1].poll() is None
        assert list((tmp_path / "dask" / "parts").glob("*.open")), "nothing was lost, so nothing was shown"
