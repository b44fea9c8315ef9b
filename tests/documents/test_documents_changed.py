"""Whatever is in a document, reading it raises nothing but our own errors."""

from __future__ import annotations

import shutil
import traceback
from pathlib import Path
from random import Random

import pytest

from documents.bench_kinds import BENCH_KINDS
from documents.kinds import PLAIN_KINDS, REFUSED, Kind
from tilewright.base.errors import TilewrightError

KINDS = {**PLAIN_KINDS, **BENCH_KINDS}
SEED = 20261
IN_CI, DEEP = 2_000, 66_000


def test_documents_that_are_right_are_read(tmp_path: Path) -> None:
    """What follows would pass for readers that refuse everything."""
    for number, kind in enumerate(KINDS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        kind.write(folder, None)
        assert kind.load(folder) != REFUSED


@pytest.mark.parametrize("name", KINDS)
def test_changed_documents_raise_our_errors_alone(name: str, tmp_path: Path) -> None:
    _try_all(name, KINDS[name], IN_CI // len(KINDS), tmp_path)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_changed_documents_raise_our_errors_alone(name: str, tmp_path: Path) -> None:
    _try_all(name, KINDS[name], DEEP // len(KINDS), tmp_path)


def _try_all(name: str, kind: Kind, count: int, folder: Path) -> None:
    """Try documents 0, 1, … of the seed: one that fails can be made again by its number alone."""
    refused = 0
    failures: dict[str, str] = {}
    for number in range(count):
        own = folder / "document"
        own.mkdir()
        content = kind.write(own, Random(f"{SEED} {name} {number}"))
        try:
            refused += kind.load(own) == REFUSED
        except TilewrightError:
            refused += 1
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failures.setdefault(
                f"{type(error).__name__} at {place.filename}:{place.lineno}",
                f"seed {SEED}, kind {name!r}, document {number}: {error!r:.300}\n{content[:2000]!r}",
            )
        shutil.rmtree(own)
    assert not failures, "\n\n".join(f"{where}: {told}" for where, told in failures.items())
    assert refused > count // 20, f"{refused} of {count} documents refused: the changes do not reach the reader"
