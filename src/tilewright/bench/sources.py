"""Read journals and tables of records as one set: each key once, whichever file it is in."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import InvalidValueError
from tilewright.bench.journal_lines import DamagedLine
from tilewright.bench.journal_merge import SelectedLines, select_best, write_records
from tilewright.bench.record import Record
from tilewright.bench.table import read_table

TABLE_SUFFIX = ".parquet"


@dataclass(frozen=True, eq=False)
class OpenedSources:
    """The records of some sources. The temporary files of the merge are removed with this value."""

    selected: SelectedLines

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def seen(self) -> int:
        """The number of intact records, duplicate keys included."""
        return self.selected.seen

    @property
    def damaged(self) -> Sequence[DamagedLine]:
        """The damaged lines of journals."""
        return self.selected.damaged

    def iterate_records(self) -> Iterator[Record]:
        """The records, one per key: memory does not grow with their number."""
        yield from self.selected.iterate_records()

    def list_counters(self) -> tuple[str, ...]:
        """The names of all counters of the records, sorted."""
        return self.selected.list_counters()


def open_sources(*sources: Path | str) -> OpenedSources:
    """The records of journals (folders or files) and tables (.parquet), merged: see `journal.merge_records`.

    Tables are first written as journals into a temporary folder, so that they are merged in little memory, too.
    """
    if not sources:
        raise InvalidValueError("no journal or table is given: pass at least one")
    paths = [Path(source) for source in sources]
    if all(path.suffix != TABLE_SUFFIX for path in paths):
        return OpenedSources(select_best(*paths))
    folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    try:
        opened = OpenedSources(
            select_best(*(_convert_to_journal(path, folder / f"{i:06}.jsonl") for i, path in enumerate(paths)))
        )
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(opened, shutil.rmtree, folder)
    return opened


def _convert_to_journal(source: Path, file: Path) -> Path:
    if source.suffix != TABLE_SUFFIX:
        return source
    write_records(read_table(source), file)
    return file
