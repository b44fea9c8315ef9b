"""Arguments that adapters receive as another library passes them, and do not support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tilewright.base.errors import InvalidValueError


def reject_unsupported(function: str, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
    """Raise for an argument that has another value than its default, which is None unless `defaults` has another."""
    for name, value in given.items():
        if not _is_default(value, (defaults or {}).get(name)):
            shown = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
            raise InvalidValueError(f"{function} does not support {name}, which is {shown}: leave it out")


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the default. A tensor is not: comparing it would wait for the device."""
    return value is default or (not isinstance(value, torch.Tensor) and bool(value == default))
