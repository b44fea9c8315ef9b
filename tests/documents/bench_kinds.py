"""Documents that sweeps and the store write: journals, tables of records, what a sweep was asked, entries and blobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import documents.mutated as change
from documents.kinds import KERNEL, KEYS, PROBLEM, REFUSED, Kind, _json, _put, digest_of
from tilewright.base.digest import digest_value, to_canonical_json
from tilewright.bench import journal_lines
from tilewright.bench.journal import merge_records, read_journal, read_known_keys
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.building.store import remote
from tilewright.building.store.local import Store
from tilewright.ops.problem_values import dump_problem

TASK = Task(
    op="gemm",
    arch="gfx942",
    kernel=KERNEL.slug,
    problem=dump_problem(PROBLEM),
    device="gpu:0",
    versions='{"gpu":"MI300X"}',
)
RECORDS = (
    Record(
        task=TASK,
        status="ok",
        kind="time",
        times=TimeStats(us=2.0, us_min=1.0, us_max=4.0, us_p10=1.5, us_p90=3.0, runs=5, warmups=1),
        share=0.5,
        worker="w",
        started=1.0,
        took_s=1.0,
    ),
    Record(task=TASK, status="crashed", message="signal 11", started=2.0),
)
ASKED = {"op": "gemm", "devices": ["gpu:0"], "cold": False}


def _line(random: Random | None, record: Record) -> bytes:
    """A line of a journal; a changed one with the right digest, as a faulty writer would give it."""
    if random is None or random.random() < 0.5:
        return journal_lines.format_line(record)
    changed = change.changed_json(random, record.to_json())
    try:
        body = to_canonical_json(json.loads(changed)).encode()
    except (ValueError, RecursionError):
        body = changed.replace(b"\n", b" ").replace(b"\r", b" ")
    return journal_lines.append_checksum(body[:-1])


def _write_journal(folder: Path, random: Random | None) -> bytes:
    (folder / "journal").mkdir(exist_ok=True)
    content = b"".join(_line(random, record) for record in RECORDS * 2)
    if random and random.random() < 0.3:
        content = change.changed_bytes(random, content)
    return _put(folder / "journal" / "w.jsonl", content)


def _load_journal(folder: Path) -> object:
    from tilewright.bench.journal_merge import select_best, write_merged

    contents = read_journal(folder / "journal")
    merge_records(contents.records)
    read_known_keys(folder / "journal", retry_failed=True)
    chosen = select_best(folder / "journal")
    chosen.list_counters()
    write_merged(chosen, folder / "merged" / "m.jsonl")
    return REFUSED if contents.damaged else contents


def _export_journal(folder: Path) -> object:
    from tilewright.bench.sources import open_sources
    from tilewright.bench.table import export_table, read_table

    found = open_sources(folder / "journal")
    export_table(found.iterate_records(), folder / "out.parquet", counters=found.list_counters())
    list(read_table(folder / "out.parquet"))
    return REFUSED if found.damaged else found


def _replay(folder: Path) -> None:
    from tilewright.bench.replay import read_replay

    device = read_replay("x", folder / "journal")
    assert device.digest and device.models is not None
    device.get_result(TASK)


def _write_table(folder: Path, random: Random | None) -> bytes:
    from tilewright.bench.table import export_table

    export_table(iter(RECORDS), folder / "table.parquet")
    raw = (folder / "table.parquet").read_bytes()
    return _put(folder / "table.parquet", change.changed_bytes(random, raw) if random else raw)


def _write_table_values(folder: Path, random: Random | None) -> bytes:
    """A right Parquet file whose values are odd: null and numbers of the columns' types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tilewright.bench.table import export_table

    path = folder / "table.parquet"
    export_table(iter(RECORDS), path)
    if random is None:
        return path.read_bytes()
    table = pq.read_table(path)
    rows = table.to_pylist()
    for _ in range(random.choice((1, 2, 3))):
        name = random.choice(table.schema.names)
        random.choice(rows)[name] = _odd_of_type(random, str(table.schema.field(name).type))
    loose = pa.schema([pa.field(f.name, f.type) for f in table.schema], metadata=table.schema.metadata)
    pq.write_table(pa.Table.from_pylist(rows, loose), path)
    return repr(rows).encode("utf-8", "backslashreplace")


def _odd_of_type(random: Random, kind: str) -> Any:
    if random.random() < 0.2:
        return None
    if kind == "double":
        return random.choice([v for v in change.ODD_VALUES if isinstance(v, float)])
    if kind == "bool":
        return random.random() < 0.5
    if kind.startswith("int"):
        return random.choice((-1, 0, 1, 2**31 - 1))
    texts = [v for v in change.ODD_VALUES if isinstance(v, str) and not any("\ud800" <= c <= "\udfff" for c in v)]
    return random.choice([*texts, "{", "[]", "[" * 3000, '{"m": 1}', '{"m": NaN}'])


def _load_table(folder: Path) -> None:
    from tilewright.bench.sources import open_sources
    from tilewright.bench.table import read_table
    from tilewright.learn.from_records import to_measurements

    list(read_table(folder / "table.parquet"))
    to_measurements(r for r in open_sources(folder / "table.parquet").iterate_records() if r.kind != "counters")


def _load_sweep_file(folder: Path) -> None:
    from tilewright.bench.sweep_file import check_folder, read_request

    read_request(folder)
    check_folder(folder, ASKED)


def _entry(log: bytes) -> Any:
    files = {"build.log": {"size": len(log), "blake2b": digest_of(log)}}
    return {"schema": 1, "key": KEYS[0], "kind": "failure", "files": files, "facts": {"errors": ["no"]}}


def _write_entry(folder: Path, random: Random | None) -> bytes:
    home = Store(folder / "store").layout.entry_folder(KEYS[0])
    home.mkdir(parents=True)
    (home / "build.log").write_bytes(b"log")
    document = _entry(b"log") | {"version": "1", "created": 1.5}
    return _json("manifest.json", lambda: document)(home, random)


def _load_entry(folder: Path) -> object:
    from tilewright.building.store.maintenance import remove_unused_entries, verify_entries

    store = Store(folder / "store")
    verify_entries(store)
    list(store.list_entries())
    found = store.get(KEYS[0])
    remove_unused_entries(store)
    return REFUSED if found is None else found


def _write_blob(folder: Path, random: Random | None) -> bytes:
    log = random.choice((b"log", b"\xff\xfe", b"")) if random else b"log"
    core = change.changed_json(random, _entry(log)) if random else json.dumps(_entry(log)).encode()
    body = remote._HEAD.pack(remote.MAGIC, 0, len(core)) + core + log
    raw = body + remote._compute_seal(KEYS[0], body)
    return _put(folder / "blob", change.changed_bytes(random, raw) if random and random.random() < 0.3 else raw)


def _load_blob(folder: Path) -> object:
    return remote.unpack_entry((folder / "blob").read_bytes(), KEYS[0])


BENCH_KINDS: Mapping[str, Kind] = {
    "journal": Kind(_write_journal, _load_journal),
    "journal to export": Kind(_write_journal, _export_journal),
    "journal to replay": Kind(_write_journal, _replay),
    "table of records": Kind(_write_table, _load_table),
    "values of a table of records": Kind(_write_table_values, _load_table),
    "sweep.json": Kind(
        _json("sweep.json", lambda: {"schema": 1, "digest": digest_value(ASKED), "asked": ASKED}), _load_sweep_file
    ),
    "store's manifest": Kind(_write_entry, _load_entry),
    "blob of the store": Kind(_write_blob, _load_blob),
}
