"""Where the public measurements lie: beside the repository, never in it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from tilewright.base.errors import TilewrightError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class MissingDataError(TilewrightError):
    """Measurements that are not there."""


def measurements(*parts: str) -> Path:
    """The path of a file of measurements, or an error that says where it should be."""
    path = DATA.joinpath(*parts)
    if not path.is_file():
        raise MissingDataError(
            f"{path} is not there. The measurements are no part of the repository: put their folder beside it, "
            "as ../shared/data."
        )
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a compressed CSV file, as text."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))
