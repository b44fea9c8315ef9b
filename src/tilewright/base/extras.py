"""Optional packages: the check that an extra is installed, with the command that installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.base.errors import MissingExtraError


def require_packages(what: str, packages: Sequence[str], extra: str) -> None:
    """Raise `MissingExtraError` if packages that `what` needs are missing. It names the extra that installs them."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"{what} needs {', '.join(missing)}. Get it with: pip install 'tilewright[{extra}]'")


def require_data_extra(what: str) -> None:
    """Raise if packages for tables and queries are missing."""
    require_packages(what, ("pyarrow", "duckdb"), "data")


def require_learn_extra(what: str) -> None:
    """Raise if packages for training and evaluation are missing."""
    require_packages(what, ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib"), "learn")


# The extra that installs a package, for names that are imported on first use.
EXTRA_OF = {
    **dict.fromkeys(("numpy", "ml_dtypes", "elftools"), "emulator"),
    **dict.fromkeys(("pyarrow", "duckdb"), "data"),
    **dict.fromkeys(("lightgbm", "scipy"), "learn"),
    **{"matplotlib": "plots", "ray": "cluster"},
}


@contextmanager
def name_missing_extra(what: str) -> Iterator[None]:
    """Turn an import of a package that an extra installs into a `MissingExtraError` if the package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtraError(
            f"{what} needs {package}. Get it with: pip install 'tilewright[{EXTRA_OF[package]}]'"
        ) from error
