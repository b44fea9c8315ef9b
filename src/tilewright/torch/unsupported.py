"""Arguments that functions have as in another library, and of which they support only the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def find_unsupported(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Return the first argument in `defaults` that has another value; None if there is none."""
    return next((name for name, default in defaults.items() if not _is_default(given[name], default)), None)


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the default. A tensor is not: comparing it would wait for the device."""
    return value is default or (not isinstance(value, torch.Tensor) and bool(value == default))
