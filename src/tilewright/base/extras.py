"""Packages that are installed on request only."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from tilewright.base.errors import MissingExtraError


def need_packages(what: str, packages: Sequence[str], extra: str) -> None:
    """Raise when packages are missing that `what` needs; the extra of ours that brings them is named."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: pip install 'tilewright[{extra}]'")
