"""One scenario's runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import _reprieve
from ._assign import assignments
from ._progress import Bar


class Result:
    """What runs showed. Data frames take it as it is: ``polars.DataFrame(result)``, ``pyarrow.table(result)``."""

    def __init__(self, record: _reprieve.Record) -> None:
        self._record = record

    @property
    def headline(self) -> str:
        """The most important finding."""
        return next(iter(self.findings), "no finding")

    @property
    def findings(self) -> list[str]:
        """All findings, the most important one first."""
        return self._record.findings

    def to_arrow(self) -> _reprieve.Table:
        """A table with a row for each run, for any library that knows Arrow's PyCapsule interface."""
        return self._record.table()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def compare(self, other: Result, names: tuple[str, str] = ("a", "b"), full: bool = False) -> str:
        """Both results side by side, as text."""
        return self._record.compare(other._record, names, full)

    def figures(self) -> list[str]:
        """The figures, as SVG."""
        return self._record.figures()

    def to_json(self) -> str:
        """The record, as ``reprieve run --json`` writes it; :func:`load` reads it."""
        return self._record.to_json()

    def to_html(self) -> str:
        """The page with figures and tables."""
        return self._record.to_html()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page if the path ends in .html, else the record."""
        path = Path(path)
        path.write_text(self.to_html() if path.suffix == ".html" else self.to_json(), encoding="utf-8")

    def __str__(self) -> str:
        return self._record.text(False)

    def __repr__(self) -> str:
        return f"<reprieve.Result: {self.headline}>"

    def _repr_html_(self) -> str:
        from html import escape

        findings = "".join(f"<p><b>{escape(finding)}</b></p>" for finding in self.findings)
        return findings + "".join(f"<div>{figure}</div>" for figure in self.figures())


def run(scenario: str | os.PathLike[str], *, jobs: int | None = None, progress: bool | None = None, **overrides: Any) -> Result:
    """Simulates a scenario: a built-in name, the path of a file, or the text of one.

    Overrides change its keys: ``run("rcu-memory", guest__vcpus=4)`` or ``run("rcu-memory", **{"guest.vcpus": 4})``.
    The same arguments give the same result on every machine, whatever ``jobs`` is (all CPUs by default).

    Raises :class:`ScenarioError`, whose ``key`` is the key at fault.
    """
    bar = Bar("runs", progress)
    try:
        record = _reprieve.run(os.fspath(scenario), assignments(overrides), jobs or cpus(), bar)
    finally:
        bar.end()
    return Result(record)


def load(path: str | os.PathLike[str]) -> Result:
    """Reads a record that ``reprieve run --json`` or :meth:`Result.save` wrote, also one of real guests."""
    return Result(_reprieve.load(Path(path).read_text(encoding="utf-8")))


def scenarios() -> dict[str, str]:
    """The built-in scenarios that the simulator runs, with their titles."""
    return dict(_reprieve.scenarios())


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def text(scenario: str) -> str:
    """The text of a built-in scenario, to be changed and run."""
    return _reprieve.text(scenario)
