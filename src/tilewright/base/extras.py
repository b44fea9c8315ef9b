"""Optional packages: the check that an extra is installed, with the command that installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NoReturn

from tilewright.base.errors import MissingExtraError

# The extra that installs a package, for names that are imported on first use.
_EXTRA_OF = {
    **dict.fromkeys(("numpy", "ml_dtypes", "elftools"), "emulator"),
    **dict.fromkeys(("pyarrow", "duckdb"), "data"),
    **dict.fromkeys(("lightgbm", "scipy"), "learn"),
    **{
        "tuf": "index",
        "cryptography": "index",
        "boto3": "s3",
        "matplotlib": "plots",
        "ray": "cluster",
        "torch": "torch",
        "triton": "triton",
    },
}


def require_packages(what: str, packages: Sequence[str], extra: str) -> None:
    """Raise `MissingExtraError` if packages that `what` needs are missing. It names the extra that installs them."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise _make_error(what, missing, extra)


def require_data_extra(what: str) -> None:
    """Raise if packages for tables and queries are missing."""
    require_packages(what, ("pyarrow", "duckdb"), "data")


def require_learn_extra(what: str) -> None:
    """Raise if packages for training and evaluation are missing."""
    require_packages(what, ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib"), "learn")


def raise_missing_extra(what: str, error: ModuleNotFoundError) -> NoReturn:
    """Raise `MissingExtraError` if an extra installs the package that `error` misses, else `error` again."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRA_OF:
        raise error
    raise _make_error(what, [package], _EXTRA_OF[package]) from error


def _make_error(what: str, missing: Sequence[str], extra: str) -> MissingExtraError:
    return MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: pip install 'tilewright[{extra}]'")
