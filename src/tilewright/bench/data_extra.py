"""The optional packages that tables and queries need."""

from __future__ import annotations

import importlib.util

from tilewright.base.errors import MissingExtraError

# Each module has the name of its package.
EXTRAS = ("pyarrow", "duckdb")
INSTALL = "pip install 'tilewright[data]'"


def require_data_extra(what: str) -> None:
    """Raise if packages that `what` needs are missing."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: {INSTALL}")
