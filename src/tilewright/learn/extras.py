"""The packages that learning needs and that are installed on request only."""

from __future__ import annotations

import importlib.util

from tilewright.base.errors import MissingExtraError

# Modules, and the packages they come in.
EXTRAS = {"numpy": "numpy", "scipy": "scipy", "pyarrow": "pyarrow", "lightgbm": "lightgbm", "matplotlib": "matplotlib"}
INSTALL = "pip install 'tilewright[learn]'"


def need_extras(what: str) -> None:
    """Raise when packages are missing that `what` needs."""
    missing = [package for module, package in EXTRAS.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: {INSTALL}")
