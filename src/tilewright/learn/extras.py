"""The optional packages that learning needs."""

from __future__ import annotations

from tilewright.base.extras import need_packages


def need_extras(what: str) -> None:
    """Raise if packages that `what` needs are missing."""
    need_packages(what, ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib"), "learn")
