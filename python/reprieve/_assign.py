"""Overrides of a scenario's keys, as the simulator reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def assignments(overrides: Mapping[str, Any]) -> list[str]:
    """``guest__vcpus=4`` and ``**{"guest.vcpus": 4}`` are both the key ``guest.vcpus``."""
    return [f"{name if '.' in name else name.replace('__', '.')}={toml(value)}" for name, value in overrides.items()]


def toml(value: Any) -> str:
    """A value as TOML."""
    if hasattr(value, "item"):
        value = value.item()  # a scalar of numpy's
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # As JSON, but DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(of)}" for key, of in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(of) for of in value) + "]"
    raise TypeError(f"{value!r} has no form in TOML; give a number, a text, a bool, a list or a dict")
