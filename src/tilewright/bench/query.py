"""SQL queries over records: DuckDB, with all records as the view `records`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.base.extras import require_data_extra
from tilewright.bench.journal_lines import DamagedLine
from tilewright.bench.sources import TABLE_SUFFIX, open_sources
from tilewright.bench.table import check_table, export_table

VIEW = "records"


@dataclass(frozen=True)
class QueryResult:
    """The columns and rows of a result, and the damaged journal lines that were skipped."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]
    damaged: Sequence[DamagedLine] = ()


def run_query(sql: str, *sources: Path | str) -> QueryResult:
    """Run a DuckDB statement on the records of journals and tables.

    A single table is queried directly. Anything else is merged into a temporary table first, for each query again.
    """
    require_data_extra("a query")
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and paths[0].suffix == TABLE_SUFFIX:
        # The schema is checked first: otherwise another kind of table would only seem to lack columns.
        check_table(paths[0])
        return _execute_query(sql, paths[0], ())
    opened = open_sources(*paths)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        table = Path(folder) / f"records{TABLE_SUFFIX}"
        export_table(opened.iterate_records(), table, counters=opened.list_counters())
        return _execute_query(sql, table, opened.damaged)


def _execute_query(sql: str, table: Path, damaged: Sequence[DamagedLine]) -> QueryResult:
    import duckdb  # noqa: PLC0415

    quoted = str(table).replace("'", "''")
    with duckdb.connect() as connection:
        try:
            connection.execute(f"CREATE VIEW {VIEW} AS SELECT * FROM read_parquet('{quoted}')")
            answer = connection.execute(sql)
            return QueryResult([column[0] for column in answer.description or ()], answer.fetchall(), damaged)
        except duckdb.Error as error:
            raise InvalidValueError(f"DuckDB rejected the query: {error}") from error
