"""The optional packages that learning needs."""

from __future__ import annotations

from tilewright.base.extras import require_packages


def require_extras(what: str) -> None:
    """Raise if packages that `what` needs are missing."""
    require_packages(what, ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib"), "learn")
