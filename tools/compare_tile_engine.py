"""Our legal GEMM kernels beside those that CK's tile_engine lists, every difference accounted for.

    tools/compare_tile_engine.py [--tile-engine FOLDER] [--json | --markdown | --write]

CK's builder is loaded from its folder and asked for its kernel list on its default configuration.
A kernel that only CK lists is put to our rules; one that only we list is put to CK's own checks,
one by one. Every difference lands in exactly one row; `unexplained` must be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright import arch as archs
from tilewright.arch.spec import Shape
from tilewright.base.digest import digest_text
from tilewright.base.errors import ToolchainError
from tilewright.building.ck_headers import find_ck_tools
from tilewright.ops import find_op
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.gemm.tile_engine import read_tile_engine
from tilewright.ops.rule import find_violations
from tilewright.ops.space import Space

ARCH, DTYPE, LAYOUT = "gfx942", "fp16", "rcr"
FOLDER_VARIABLE = "TILEWRIGHT_TEST_TILE_ENGINE"
DOCUMENT = Path(__file__).parent.parent / "docs" / "tile-engine-comparison.md"
# What decides CK's list. Their digest in the document says which CK it was made with.
DECIDING = (
    "ops/gemm/gemm_instance_builder.py",
    "ops/gemm/configs/default_config.json",
    "ops/commons/validation_utils.py",
)
# The pipeline for which CK's builder checks every tile, whatever pipelines the kernel is made for.
CHECKED_AS = "compv4"
UNEXPLAINED = "unexplained"

Key = tuple[Shape, Shape, Shape, str, str, str, bool]
FIELDS = ("block", "waves", "mma", "pipeline", "scheduler", "epilogue", "persistent")


@dataclass(frozen=True)
class Row:
    """So many kernels for one reason."""

    reason: str
    what: str
    count: int


@dataclass(frozen=True)
class Comparison:
    """Both lists and where they differ. `only_ck` and `only_ours` add up to the differences."""

    folder_digest: str
    raw: int
    ck: int
    ours: int
    both: int
    only_ck: tuple[Row, ...]  # by the first of our rules that refuses
    only_ours: tuple[Row, ...]  # by the first of CK's checks that refuses
    only_ours_sets: tuple[Row, ...]  # the same kernels by all of CK's checks that refuse

    @property
    def unexplained(self) -> int:
        rows = (*self.only_ck, *self.only_ours)
        return sum(row.count for row in rows if row.reason == UNEXPLAINED)

    def adds_up(self) -> bool:
        """Whether the rows of each side are exactly that side's surplus."""
        return (
            sum(row.count for row in self.only_ck) == self.ck - self.both
            and sum(row.count for row in self.only_ours) == self.ours - self.both
            and sum(row.count for row in self.only_ours_sets) == self.ours - self.both
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON."""
        sides = ("only_ck", "only_ours", "only_ours_sets")
        return {
            "arch": ARCH,
            "dtype": DTYPE,
            "layout": LAYOUT,
            "tile_engine": self.folder_digest,
            "raw": self.raw,
            "ck": self.ck,
            "ours": self.ours,
            "both": self.both,
            **{side: {row.reason: row.count for row in getattr(self, side)} for side in sides},
        }


def find_tile_engine(given: Path | None = None) -> Path:
    """The tile_engine folder: the given one, else the variable's, else the fetched one."""
    if given is not None:
        return given
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    return find_ck_tools()


def folder_digest(folder: Path) -> str:
    """Names the CK whose list this is: a digest over the files that decide it."""
    texts = ((folder / name).read_text(encoding="utf-8") for name in DECIDING)
    return digest_text("\0".join(texts))[:12]


def compare(folder: Path) -> Comparison:
    """Both lists on the default configuration of the tile_engine in `folder`."""
    with _quiet():
        builder = _load_builder(folder)
        theirs = ck_kernels(builder, folder / DECIDING[1])
        space = read_tile_engine(folder / DECIDING[1], dtype=DTYPE, layout=LAYOUT)
        ours = our_kernels(space)
        refusing = {key: refusing_checks(builder, key) for key in sorted(ours - theirs)}
    only_ck = Counter(_first_rule(key) for key in sorted(theirs - ours))
    rules = {r.code: r for r in find_op("gemm").rules}
    checks = {check.name: check.what for check in CHECKS} | {UNEXPLAINED: ""}
    first = Counter(names[0] for names in refusing.values())
    whole = Counter(" + ".join(names) for names in refusing.values())
    return Comparison(
        folder_digest=folder_digest(folder),
        raw=space.count_raw(ARCH),
        ck=len(theirs),
        ours=len(ours),
        both=len(theirs & ours),
        only_ck=_rows(only_ck, {c: f"{r.slug}: {r.what}" for c, r in rules.items()}),
        only_ours=_rows(first, checks),
        only_ours_sets=_rows(whole, {}),
    )


def _rows(counts: Counter[str], texts: dict[str, str]) -> tuple[Row, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Row(reason, texts.get(reason, ""), count) for reason, count in ordered)


@contextlib.contextmanager
def _quiet() -> Any:
    """CK's builder prints, and turns on logging for the whole process when it is imported."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def _load_builder(folder: Path) -> ModuleType:
    path = folder / DECIDING[0]
    spec = importlib.util.spec_from_file_location("ck_gemm_instance_builder", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolchainError(f"{path} is not there: {folder} is no tile_engine folder")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ck_kernels(builder: ModuleType, config: Path) -> set[Key]:
    """The kernels that CK's builder writes into its list."""
    with tempfile.TemporaryDirectory() as folder:
        builder.GemmKernelBuilder(folder, ARCH, DTYPE, LAYOUT, str(config)).write_kernel_list()
        lines = (Path(folder) / "gemm_kernel_list.txt").read_text().splitlines()
    return {_parse_line(line) for line in lines}


def _parse_line(line: str) -> Key:
    """`name|tiles|traits`; the traits are pipeline, epilogue, scheduler, pads and persistent."""
    _, tiles, traits = line.split("|")
    block, waves, mma = (Shape(*map(int, tile.split("x"))) for tile in tiles.split("_"))
    pipeline, epilogue, scheduler, *pads, persistent = traits.split("_")
    if pads != ["False"] * 3:
        raise ValueError(f"CK lists a padded kernel, its default configuration has none: {line}")
    return block, waves, mma, pipeline, scheduler, epilogue, persistent == "True"


def our_kernels(space: Space) -> set[Key]:
    """Our legal kernels of the space, in the terms both lists share."""
    return {tuple(getattr(k.config, name) for name in FIELDS) for k in space.iter(ARCH)}


def _first_rule(key: Key) -> str:
    """The first of our rules that refuses a kernel which only CK lists."""
    op = find_op("gemm")
    fixed = {"variant": "standard", **expand_dtype(DTYPE), "layout": LAYOUT}
    config = op.make_config(**fixed, **dict(zip(FIELDS, key, strict=True)))
    found = find_violations(op.rules, config, archs.load(ARCH))
    return found[0].code if found else UNEXPLAINED


@dataclass(frozen=True)
class Check:
    """One of CK's checks: what it demands, and the call that makes it on one kernel."""

    name: str
    what: str
    passes: Callable[[Any, Key], bool]


def _said(answer: Any) -> bool:
    """CK's checks answer with a bool, or with a bool and a text."""
    return bool(answer[0] if isinstance(answer, tuple) else answer)


# In the order in which CK's is_tile_config_valid makes them; the traits come on their own.
CHECKS = (
    Check(
        "waves",
        "waves must be 1x4x1, 2x2x1 or 4x1x1 (validate_warp_configuration)",
        lambda v, k: _said(v.validate_warp_configuration(*k[1], ARCH)),
    ),
    Check(
        "cover",
        "block must be a multiple of waves × mma (validate_dimension_alignment)",
        lambda v, k: _said(v.validate_dimension_alignment(*k[0], *k[1], *k[2])),
    ),
    Check(
        "lds-other-pipeline",
        "A and B must fit 32 KiB, half of the LDS: compv4's limit, applied to every pipeline; the "
        "kernel's own pipeline has room for them (validate_lds_capacity)",
        lambda v, k: _fits(v, k, CHECKED_AS) or not _fits(v, k, k[3]),
    ),
    Check(
        "lds",
        "A and B must fit the LDS of the kernel's own pipeline (validate_lds_capacity)",
        lambda v, k: _fits(v, k, CHECKED_AS) or _fits(v, k, k[3]),
    ),
    Check(
        "spread",
        "A and B must be distributed evenly over the threads (validate_whole_wg_cover_configuration)",
        lambda v, k: _said(v.validate_whole_wg_cover_configuration(*k[0], *k[1], LAYOUT, DTYPE, DTYPE)),
    ),
    Check(
        "mma",
        "mma must be listed for the GPU and type (validate_warp_tile_combination)",
        lambda v, k: _said(v.validate_warp_tile_combination(*k[2], DTYPE, DTYPE, DTYPE, ARCH)),
    ),
    Check(
        "traits",
        "pipeline, epilogue and scheduler must go together (is_trait_combination_valid)",
        lambda v, k: _said(v.is_trait_combination_valid(k[3], k[5], k[4])),
    ),
)


def _fits(validation: Any, key: Key, pipeline: str) -> bool:
    return _said(validation.validate_lds_capacity(*key[0], DTYPE, DTYPE, pipeline))


def refusing_checks(builder: ModuleType, key: Key) -> list[str]:
    """All of CK's checks that refuse a kernel which only we list."""
    validation = builder._validation_utils
    found = [check.name for check in CHECKS if not check.passes(validation, key)]
    return found or [UNEXPLAINED]


def markdown(comparison: Comparison) -> str:
    """The document docs/tile-engine-comparison.md."""
    c = comparison
    lines = [
        "# Our kernels compared with CK's tile_engine",
        "",
        "Written by `tools/compare_tile_engine.py --write`. A test keeps it up to date.",
        "",
        "Both lists start from tile_engine's default GEMM configuration for "
        f"{ARCH}, {DTYPE}, {LAYOUT}: {c.raw:,} combinations.",
        f"The tile_engine files that decide its list have the digest `{c.folder_digest}`.",
        "",
        "| kernels | count |",
        "|---|---:|",
        f"| listed by tile_engine | {c.ck:,} |",
        f"| legal by our rules | {c.ours:,} |",
        f"| in both lists | {c.both:,} |",
        f"| only in tile_engine's list | {c.ck - c.both:,} |",
        f"| only in our list | {c.ours - c.both:,} |",
        f"| differences without a reason | {c.unexplained:,} |",
        "",
        "## Kernels that only tile_engine lists, by our first rule that rejects them",
        "",
        *_table(("rule", "requirement", "kernels"), c.only_ck),
        "",
        "## Kernels that only we list, by tile_engine's first check that rejects them",
        "",
        *_table(("check", "requirement", "kernels"), c.only_ours),
        "",
        "## The same kernels, by all checks that reject them",
        "",
        "| checks | kernels |",
        "|---|---:|",
        *(f"| {row.reason} | {row.count:,} |" for row in c.only_ours_sets),
    ]
    return "\n".join(lines) + "\n"


def _table(head: tuple[str, str, str], rows: Iterable[Row]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|"]
    lines += [f"| {row.reason} | {row.what} | {row.count:,} |" for row in rows]
    return [*lines, f"| total | | {sum(row.count for row in rows):,} |"]


def plain(comparison: Comparison) -> str:
    """The comparison as a table for a terminal."""
    c = comparison
    lines = [f"{ARCH} {DTYPE} {LAYOUT}: {c.raw:,} combinations; CK lists {c.ck:,}, ours {c.ours:,}, both {c.both:,}"]
    sides = (
        ("only CK, refused by our rule", c.only_ck),
        ("only ours, refused by CK's", c.only_ours),
    )
    for title, rows in sides:
        lines.append(f"{title}: {sum(row.count for row in rows):,}")
        lines += [f"  {row.count:>7,}  {row.reason:<20} {row.what}" for row in rows]
    lines.append(f"unexplained: {c.unexplained:,}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tile-engine", type=Path, help="CK's tile_engine folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the document")
    form.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    comparison = compare(find_tile_engine(options.tile_engine))
    if options.write:
        DOCUMENT.write_text(markdown(comparison), encoding="utf-8")
    elif options.json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        print(markdown(comparison) if options.markdown else plain(comparison))
    return 0 if comparison.adds_up() and not comparison.unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
