"""The functions that write files for others to read, each with a reader that raises for files which are not whole."""

from __future__ import annotations

import functools
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import tilewright as tw
from documents.bench_kinds import RECORDS
from documents.kinds import KERNEL
from learn import synthetic
from tests.building.stores import key_of
from tilewright.base.digest import digest_tree
from tilewright.base.documents import read_json
from tilewright.bench.journal import Journal, merge_records, read_journal
from tilewright.bench.journal_merge import write_records
from tilewright.bench.plan import Shard
from tilewright.bench.record import Record
from tilewright.bench.report.page import write_report
from tilewright.bench.sweep_file import claim_folder, lock_shard, read_request
from tilewright.bench.table import export_table, read_table
from tilewright.building.prebuilt.kernel_wheel import BuildFacts
from tilewright.building.prebuilt.write_wheel import WheelKernel, write_wheel
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.codegen.op_folder import write_op_folder
from tilewright.emulator.sanitizer import reports
from tilewright.learn.bundle_writer import BundleInfo, collect_problem_values, write_bundle
from tilewright.learn.dataset import build_dataset
from tilewright.learn.measurements import read_measurements, write_measurements
from tilewright.learn.training import train
from tilewright.learn.training_config import TrainingConfig
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.select.bundle import read_bundle
from tilewright.select.tuned import TunedEntry, TunedTable, read_tuned, write_tuned

BUILT = BuildFacts("gpu-less", "clang version 22.1", "5.2.0", "1d" * 16, "c4" * 16, "2025-11", ())


@dataclass(frozen=True)
class Writer:
    """`write` writes a version of something into a folder, and `read` reads all of it again.

    `advice` is the part of the error of a full disk that says what to do.
    """

    write: Callable[[Path, int], object]
    read: Callable[[Path], object]
    advice: str = "Free disk space"


def _put(store: Store, version: int) -> Artifact:
    """Put an entry into a store whose bytes cannot be compressed."""
    with tempfile.NamedTemporaryFile() as source:
        source.write(Random(f"code {version}").randbytes(60_000))
        source.flush()
        return store.put(key_of(version), {"kernel.so": Path(source.name)}, {"slug": "gemm-x"})


def _write_wheel(folder: Path, version: int) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        kernels = [WheelKernel(_put(Store(Path(elsewhere) / "store"), version), key_of("source"))]
        write_wheel(folder / "dist", "kernels", "1.0", "gfx942", BUILT, kernels)


def _read_wheel(folder: Path) -> object:
    (wheel,) = folder.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _read_entries(folder: Path) -> object:
    store = Store(folder / "store")
    found = [store.get(key) for key in store.list_keys()]
    return [entry.verify_file("kernel.so").read_bytes() for entry in found if isinstance(entry, Artifact)]


@functools.cache
def _list_kernels() -> tuple[Kernel, ...]:
    return tuple(find_op("gemm").sets()["fp16_rcr_all"].kernels("gfx942"))[:40]


def _make_tuned(version: int) -> TunedTable:
    problems = (tw.gemm.Problem(m=64 + n, n=128, k=256, dtype="fp16", layout="rcr") for n in range(60))
    return TunedTable(TunedEntry(KERNEL, problem, 2.0 + version) for problem in problems)


@functools.cache
def _train() -> tuple[Any, Any]:
    data = build_dataset(synthetic.table(), "gemm", synthetic.ARCH)
    return train(data, TrainingConfig(rounds=20, patience=0, seeds=(0, 1), least_in_leaf=5)), data


def _write_bundle(folder: Path, version: int) -> None:
    model, data = _train()
    about = BundleInfo(data=f"version {version}", where=collect_problem_values(data), held_out={})
    write_bundle(folder / "bundle", model, data, about)


def make_records(version: int) -> list[Record]:
    """Records of kernels with names of any length, as many in every version."""
    names = (f"kernel-{n}-{'x' * (n * 7 % 50)}" for n in range(40 * version, 40 * version + 40))
    return [replace(RECORDS[0], task=replace(RECORDS[0].task, kernel=name)) for name in names]


def _append(folder: Path, version: int) -> None:
    with Journal(folder / "sweep", "w", fsync="never") as journal:
        for record in make_records(version):
            journal.append(record)


def _read_records(files: Iterable[Path]) -> object:
    contents = [read_journal(file) for file in files]
    assert not any(each.damaged for each in contents)
    return sorted(merge_records(record for each in contents for record in each.records))


def _claim(folder: Path, version: int) -> None:
    own = folder / f"sweep-{version}"
    claim_folder(own, {"devices": ["gpu:0"] * 2000})
    with lock_shard(own, Shard(1, 1)):
        pass


WRITERS: Mapping[str, Writer] = {
    "wheel": Writer(_write_wheel, _read_wheel),
    "store": Writer(lambda folder, version: _put(Store(folder / "store"), version), _read_entries, "Free space with"),
    "journal": Writer(_append, lambda folder: _read_records([folder / "sweep"])),
    "merged journal": Writer(
        lambda folder, version: write_records(make_records(version), folder / f"{version}.jsonl"),
        lambda folder: _read_records(sorted(folder.glob("*.jsonl"))),
    ),
    "request of a sweep": Writer(_claim, lambda folder: [read_request(each) for each in sorted(folder.iterdir())]),
    "table of records": Writer(
        lambda folder, version: export_table(make_records(version), folder / "table.parquet"),
        lambda folder: list(read_table(folder / "table.parquet")),
    ),
    "report of a sweep": Writer(
        lambda folder, version: write_report(folder / "report.html", RECORDS[:1], title=f"version {version}"),
        lambda folder: (folder / "report.html").read_text(encoding="utf-8"),
    ),
    "registry": Writer(
        lambda folder, version: tw.Registry.of(_list_kernels()[version:]).save(folder / "registry.json", full=True),
        lambda folder: tw.Registry.load(folder / "registry.json", Store(folder / "store")).kernels,
    ),
    "tuned table": Writer(
        lambda folder, version: write_tuned(_make_tuned(version), folder / "tuned.json"),
        lambda folder: list(read_tuned(folder / "tuned.json")),
    ),
    "table of measurements": Writer(
        lambda folder, version: write_measurements(folder / "table.parquet", synthetic.table(40 + version)),
        lambda folder: len(read_measurements(folder / "table.parquet")),
    ),
    "model bundle": Writer(_write_bundle, lambda folder: (read_bundle(folder / "bundle").op, digest_tree(folder))),
    "sources": Writer(
        lambda folder, version: tw.generate(_list_kernels()[version:], folder / "sources", jobs=1),
        lambda folder: (digest_tree(folder / "sources"), read_json(folder / "sources" / "manifest.json")),
    ),
    "sources of a new op": Writer(
        lambda folder, version: write_op_folder(f"mine{version}", folder / f"mine{version}"), digest_tree
    ),
    "findings": Writer(
        lambda folder, version: reports.write_report(folder / f"findings{version}.html", []),
        lambda folder: [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())],
    ),
}
