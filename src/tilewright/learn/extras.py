"""The packages that learning needs and that are installed on request only."""

from __future__ import annotations

from tilewright.base.extras import need_packages


def need_extras(what: str) -> None:
    """Raise when packages are missing that `what` needs."""
    need_packages(what, ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib"), "learn")
