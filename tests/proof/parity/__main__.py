"""Compare kernels of Tilewright with those of CK's own generators, and write docs/parity.md.

    python -m tests.proof.parity [--ck FOLDER] [--records FILE] [--only TEXT]… [--out docs/parity.md]

FOLDER is a tree of composable_kernel with `example` and `tile_engine`; without it, the tree is taken from the package
that CK Tile's headers come from. It must be the tree whose headers the toolchain uses. A kernel takes 5 to 30
CPU seconds. Results in the records file are not computed again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ci_kernels import STORE
from tests.proof.parity import conv_units, fmha_units, gemm_units
from tests.proof.parity.comparing import Comparison, compare
from tests.proof.parity.page import Row, format_page
from tests.proof.parity.unit import Unit
from tilewright.base.errors import ToolchainError
from tilewright.building.ck_archive import check_digest, download_archive, unpack_archive
from tilewright.building.ck_cache import DEFAULT_TREE, find_pinned_tree
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.ops import find_op

PARTS = (fmha_units.EXAMPLE, conv_units.EXAMPLE, "tile_engine")


def list_units(tree: Path, work: Path) -> Iterator[Unit]:
    """List the kernels of all ops, each with CK's source."""
    for part in (gemm_units, conv_units, fmha_units):
        yield from part.list_units(tree, work)


def group_units(units: Iterable[Unit]) -> list[list[Unit]]:
    """Group kernels that one source can have: those of an op's kind and a GPU."""
    groups: dict[tuple[str, str, str], list[Unit]] = {}
    for unit in units:
        kernel = unit.kernel
        groups.setdefault((kernel.op, find_op(kernel.op).kind(kernel.config).name, kernel.arch), []).append(unit)
    return list(groups.values())


def find_tree(given: Path | None, work: Path) -> Path:
    """Find CK's generators: in the given folder, or in the package of the default tree."""
    tree = given
    if tree is None:
        pinned, tree = find_pinned_tree(DEFAULT_TREE), work / "ck"
        archive = download_archive(pinned, work)
        check_digest(archive, pinned)
        unpack_archive(archive, pinned.folder, tree, PARTS)
    missing = [part for part in PARTS if not (tree / part).is_dir()]
    if missing:
        raise ToolchainError(f"{tree} has no {' and no '.join(missing)}: it is no checkout of composable_kernel")
    return tree.absolute()


def make_rows(
    units: Sequence[Unit], toolchain: Toolchain, records: Path | None, known: Mapping[str, Any], work: Path
) -> list[Row]:
    """Compare the kernels of a group, or take their results from the records."""
    missing = [unit for unit in units if unit.key not in known]
    found = {key: Comparison(**facts) for key, facts in known.items()}
    if missing:
        found |= {
            unit.key: result for unit, result in zip(missing, compare(missing, toolchain, STORE, work), strict=True)
        }
    if records is not None:
        records.parent.mkdir(parents=True, exist_ok=True)
        with records.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps({"key": unit.key, **asdict(found[unit.key])}) + "\n" for unit in missing)
    return [Row(unit, found[unit.key]) for unit in units]


def read_records(path: Path | None) -> dict[str, Any]:
    """Read the results so far by their keys."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line.pop("key"): line for line in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ck", type=Path, help="a tree of composable_kernel with example and tile_engine")
    parser.add_argument("--records", type=Path, help="a file for results, to continue after an interruption")
    parser.add_argument("--only", action="append", metavar="TEXT", help="compare only kernels with TEXT in their names")
    parser.add_argument("--recorded", action="store_true", help="compile nothing: show the results in the records")
    parser.add_argument("--out", type=Path, help="the document to write")
    options = parser.parse_args()
    toolchain, known = find_toolchain(), read_records(options.records)
    rows = []
    with tempfile.TemporaryDirectory() as private:
        work = Path(private)
        listed = list(list_units(find_tree(options.ck, work), work))
        wanted = () if options.recorded else options.only or ("",)
        chosen = [unit for unit in listed if unit.key in known or any(text in unit.kernel.slug for text in wanted)]
        for units in group_units(chosen):
            made = make_rows(units, toolchain, options.records, known, work)
            print("\n".join(f"{row.unit.kernel.slug}: {row.verdict}" for row in made), flush=True)
            rows += made
    if options.out:
        options.out.write_text(format_page(rows, len(listed), toolchain.compiler), encoding="utf-8")
    return 0 if all(row.is_explained for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
