"""A bar on stderr for what takes over two seconds."""

from __future__ import annotations

import sys
import time


class Bar:
    """Is called with what is done, and of how much."""

    def __init__(self, what: str, shown: bool | None) -> None:
        self.what = what
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.started = time.monotonic()
        self.is_drawn = False
        self.before: int | None = None

    def __call__(self, done: int, of: int) -> None:
        # A sweep that goes on begins with what was done before.
        self.before = done if self.before is None else self.before
        took = time.monotonic() - self.started
        if not self.shown or (took < 2 and not self.is_drawn):
            return
        self.is_drawn = True
        filled = 30 * done // max(of, 1)
        new = done - self.before
        left = f", about {took / new * (of - done):.0f} s left" if new else ""
        print(f"\r{'#' * filled}{'.' * (30 - filled)} {done} of {of} {self.what}{left}   ", end="", file=sys.stderr)

    def end(self) -> None:
        if self.is_drawn:
            print(file=sys.stderr)
