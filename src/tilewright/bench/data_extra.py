"""The packages that tables and queries need and that are installed on request only."""

from __future__ import annotations

import importlib.util

from tilewright.base.errors import MissingExtraError

# Modules are named as their packages.
EXTRAS = ("pyarrow", "duckdb")
INSTALL = "pip install 'tilewright[data]'"


def need_data(what: str) -> None:
    """Raise when packages are missing that `what` needs."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: {INSTALL}")
