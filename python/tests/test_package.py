"""The package as a user has it: installed, without the command."""

from __future__ import annotations

import json
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import reprieve

SMALL = """
name = "small"
title = "a small space"
run = { repeat = 2, warmup_ms = 0, window_ms = 500 }
guest = { memory_mib = 512 }
workload = { kind = "memory", burst = 10 }
[conditions.baseline]
[conditions.overcommitted]
overcommit = 2.0
"""
SPACE = (
    SMALL
    + """
[space.axes.overcommit]
key = "conditions.overcommitted.overcommit"
values = [1.5, 3.0]
[space.axes.vcpus]
key = "guest.vcpus"
values = [1, 2]
"""
)


def test_a_run_repeats_exactly_and_data_frames_read_it() -> None:
    one, other = reprieve.run(SMALL, jobs=1), reprieve.run(SMALL, jobs=2)
    assert one.to_json() == other.to_json()
    assert one.headline.split(":")[0] in str(one)
    pyarrow, polars, pandas = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    table = pyarrow.table(one)
    assert table.num_rows == 4 and table.column("gp_p99_ns").null_count == 0
    frame = polars.DataFrame(one)
    assert frame["gp_p99_ns"].to_list() == table.column("gp_p99_ns").to_pylist()
    assert table.to_pandas()["condition"].tolist() == frame["condition"].to_list()
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert len(pandas.DataFrame.from_arrow(one)) == 4


def test_results_are_saved_and_loaded_and_compared(tmp_path) -> None:
    result = reprieve.run(SMALL)
    result.save(tmp_path / "record.json")
    loaded = reprieve.load(tmp_path / "record.json")
    assert loaded.to_json() == result.to_json()
    assert json.loads(result.to_json())["studies"][0]["scenario"]["name"] == "small"
    assert "gp" in result.compare(reprieve.run(SMALL, guest__vcpus=2)).lower()
    result.save(tmp_path / "page.html")
    assert "<svg" in (tmp_path / "page.html").read_text() and "<svg" in result._repr_html_()


def test_a_slip_is_an_exception_with_its_key() -> None:
    with pytest.raises(reprieve.ScenarioError) as raised:
        reprieve.run("rcu-memory", guest__vcpu=4)
    assert raised.value.key == "guest.vcpu" and "did you mean guest.vcpus" in str(raised.value)
    with pytest.raises(reprieve.ScenarioError, match="did you mean rcu-memory"):
        reprieve.run("rcu-memroy")
    with pytest.raises(OSError):
        reprieve.run("nowhere.toml")
    with pytest.raises(TypeError, match="no form in TOML"):
        reprieve.run(SMALL, guest__vcpus=object())


def test_ctrl_c_ends_a_run_soon_and_other_threads_go_on() -> None:
    counted = []
    stop = threading.Event()

    def count() -> None:
        while not stop.wait(0.01):
            counted.append(1)

    counter = threading.Thread(target=count)
    counter.start()
    threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        reprieve.run("rcu-memory", run__repeat=1000)
    assert time.monotonic() - began < 5
    stop.set()
    counter.join()
    assert len(counted) > 10


def test_a_sweep_is_the_same_on_every_executor(tmp_path) -> None:
    alone = reprieve.sweep(SPACE, folder=tmp_path / "alone")
    with ProcessPoolExecutor(2) as processes, ThreadPoolExecutor(2) as threads:
        others = [
            reprieve.sweep(SPACE, folder=tmp_path / name, executor=executor, shards=3)
            for name, executor in (("processes", processes), ("threads", threads))
        ]
    tables = [[path.read_bytes() for path in sweep.merge()] for sweep in (alone, *others)]
    assert tables[0] == tables[1] == tables[2]
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    assert pyarrow.table(alone).equals(pyarrow.parquet.read_table(tmp_path / "alone" / "table.parquet"))
    assert alone.status["done"] == alone.status["runs"]


def test_a_sweep_goes_on_where_it_ended(tmp_path) -> None:
    sweep = reprieve.sweep(SPACE, folder=tmp_path / "s")
    before = [path.read_bytes() for path in sweep.merge()]
    part = next((tmp_path / "s" / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:-20])
    assert sweep.status["done"] == sweep.status["runs"] - 1
    again = reprieve.sweep(SPACE, folder=tmp_path / "s")
    assert [path.read_bytes() for path in again.merge()] == before
    with pytest.raises(reprieve.SweepError, match="another plan"):
        reprieve.sweep(SPACE, folder=tmp_path / "s", run__repeat=3)


def test_sensitivity_finds_the_key_that_matters(tmp_path) -> None:
    pytest.importorskip("SALib")
    # The label changes nothing, so its index is 0.
    indices = reprieve.sensitivity(
        SMALL, {"conditions.overcommitted.overcommit": (1.25, 4.0), "guest.memory_mib": (512, 520)}, "gp_p99_ns", points=16, run__repeat=1
    )
    assert indices.total[0] > indices.total[1]
    assert str(indices).startswith("conditions.overcommitted.overcommit matters most")
