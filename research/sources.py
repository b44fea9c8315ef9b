"""Find the public measurements in ../shared/data, next to the repository."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from tilewright.base.errors import TilewrightError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class MissingDataError(TilewrightError):
    """A file of measurements is missing."""


def find_measurements(*parts: str) -> Path:
    """Return the path of a file of measurements, or raise an error with the expected path."""
    path = DATA.joinpath(*parts)
    if not path.is_file():
        raise MissingDataError(
            f"{path} is missing. The measurements are not part of the repository: put them into ../shared/data. "
            "research/README.md lists their sources."
        )
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a compressed CSV file, as text."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))
