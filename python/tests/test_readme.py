"""The README's first lines, as a user types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def lines() -> str:
    """The first block of code, without the shell's line."""
    indented = [line[4:] for line in README.read_text(encoding="utf-8").split("\n## ")[0].splitlines() if line.startswith("    ")]
    return "\n".join(line for line in indented if not line.startswith("pip "))


def test_the_first_lines_run(tmp_path) -> None:
    program = lines()
    assert len(program.splitlines()) == 5
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "grace period" in done.stdout.lower()
