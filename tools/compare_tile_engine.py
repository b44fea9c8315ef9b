"""Compare our legal GEMM kernels with those that CK's tile_engine lists, and give a reason for every difference.

    tools/compare_tile_engine.py [--tile-engine FOLDER] [--json | --markdown | --write]

CK's builder is loaded from its folder, and lists the kernels of its default configuration. Kernels that only CK lists
are checked with our rules; kernels that only we list are checked with each of CK's own checks. Every difference is in
exactly one row; `unexplained` must be 0.
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
# The files that decide CK's list. Their digest in the document identifies CK's version.
LIST_FILES = (
    "ops/gemm/gemm_instance_builder.py",
    "ops/gemm/configs/default_config.json",
    "ops/commons/validation_utils.py",
)
# CK's builder checks every tile for this pipeline, whatever the kernel's own pipeline is.
CHECKED_AS = "compv4"
UNEXPLAINED = "unexplained"

Key = tuple[Shape, Shape, Shape, str, str, str, bool]
FIELDS = ("block", "waves", "mma", "pipeline", "scheduler", "epilogue", "persistent")


@dataclass(frozen=True)
class Row:
    """The number of kernels with one reason."""

    reason: str
    what: str
    count: int


@dataclass(frozen=True)
class Comparison:
    """Both lists and their differences. `only_ck` and `only_ours` add up to the differences."""

    folder_digest: str
    raw: int
    ck: int
    ours: int
    both: int
    only_ck: tuple[Row, ...]  # by our first rule that rejects them
    only_ours: tuple[Row, ...]  # by CK's first check that rejects them
    only_ours_sets: tuple[Row, ...]  # the same kernels, by all of CK's checks that reject them

    @property
    def unexplained(self) -> int:
        rows = (*self.only_ck, *self.only_ours)
        return sum(row.count for row in rows if row.reason == UNEXPLAINED)

    def adds_up(self) -> bool:
        """Whether the rows of each side add up to its additional kernels."""
        return (
            sum(row.count for row in self.only_ck) == self.ck - self.both
            and sum(row.count for row in self.only_ours) == self.ours - self.both
            and sum(row.count for row in self.only_ours_sets) == self.ours - self.both
        )

    def to_json(self) -> dict[str, Any]:
        """Convert the comparison to JSON values."""
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
    """Find the tile_engine folder: the given one, the one in the environment, or the fetched one."""
    if given is not None:
        return given
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    return find_ck_tools()


def digest_folder(folder: Path) -> str:
    """Digest the files that decide the list, to identify CK's version."""
    texts = ((folder / name).read_text(encoding="utf-8") for name in LIST_FILES)
    return digest_text("\0".join(texts))[:12]


def compare(folder: Path) -> Comparison:
    """Compare both lists for the default configuration of the tile_engine in `folder`."""
    with _silence_builder():
        builder = _load_builder(folder)
        theirs = list_ck_kernels(builder, folder / LIST_FILES[1])
        space = read_tile_engine(folder / LIST_FILES[1], dtype=DTYPE, layout=LAYOUT)
        ours = list_our_kernels(space)
        refusing = {key: find_rejecting_checks(builder, key) for key in sorted(ours - theirs)}
    only_ck = Counter(_find_first_rule(key) for key in sorted(theirs - ours))
    rules = {r.code: r for r in find_op("gemm").rules}
    checks = {check.name: check.what for check in CHECKS} | {UNEXPLAINED: ""}
    first = Counter(names[0] for names in refusing.values())
    whole = Counter(" + ".join(names) for names in refusing.values())
    return Comparison(
        folder_digest=digest_folder(folder),
        raw=space.count_raw(ARCH),
        ck=len(theirs),
        ours=len(ours),
        both=len(theirs & ours),
        only_ck=_make_rows(only_ck, {c: f"{r.slug}: {r.what}" for c, r in rules.items()}),
        only_ours=_make_rows(first, checks),
        only_ours_sets=_make_rows(whole, {}),
    )


def _make_rows(counts: Counter[str], texts: dict[str, str]) -> tuple[Row, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Row(reason, texts.get(reason, ""), count) for reason, count in ordered)


@contextlib.contextmanager
def _silence_builder() -> Any:
    """Silence CK's builder, which prints, and enables logging for the whole process when it is imported."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def _load_builder(folder: Path) -> ModuleType:
    path = folder / LIST_FILES[0]
    spec = importlib.util.spec_from_file_location("ck_gemm_instance_builder", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolchainError(f"{path} is not there: {folder} is no tile_engine folder")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_ck_kernels(builder: ModuleType, config: Path) -> set[Key]:
    """List the kernels that CK's builder writes into its list."""
    with tempfile.TemporaryDirectory() as folder:
        builder.GemmKernelBuilder(folder, ARCH, DTYPE, LAYOUT, str(config)).write_kernel_list()
        lines = (Path(folder) / "gemm_kernel_list.txt").read_text().splitlines()
    return {_parse_line(line) for line in lines}


def _parse_line(line: str) -> Key:
    """Parse `name|tiles|traits`; the traits are pipeline, epilogue, scheduler, pads and persistent."""
    _, tiles, traits = line.split("|")
    block, waves, mma = (Shape(*map(int, tile.split("x"))) for tile in tiles.split("_"))
    pipeline, epilogue, scheduler, *pads, persistent = traits.split("_")
    if pads != ["False"] * 3:
        raise ValueError(f"CK lists a padded kernel, its default configuration has none: {line}")
    return block, waves, mma, pipeline, scheduler, epilogue, persistent == "True"


def list_our_kernels(space: Space) -> set[Key]:
    """List our legal kernels of the space, in the terms that both lists share."""
    return {tuple(getattr(k.config, name) for name in FIELDS) for k in space.iter(ARCH)}


def _find_first_rule(key: Key) -> str:
    """Find our first rule that rejects a kernel which only CK lists."""
    op = find_op("gemm")
    fixed = {"variant": "standard", **expand_dtype(DTYPE), "layout": LAYOUT}
    config = op.make_config(**fixed, **dict(zip(FIELDS, key, strict=True)))
    found = find_violations(op.rules, config, archs.load(ARCH))
    return found[0].code if found else UNEXPLAINED


@dataclass(frozen=True)
class Check:
    """One of CK's checks: its requirement, and the call that makes the check."""

    name: str
    what: str
    passes: Callable[[Any, Key], bool]


def _is_valid(result: Any) -> bool:
    """Read the result of a check: a bool, or a bool and a text."""
    return bool(result[0] if isinstance(result, tuple) else result)


# In the order of CK's is_tile_config_valid; the traits have their own function.
CHECKS = (
    Check(
        "waves",
        "waves must be 1x4x1, 2x2x1 or 4x1x1 (validate_warp_configuration)",
        lambda v, k: _is_valid(v.validate_warp_configuration(*k[1], ARCH)),
    ),
    Check(
        "cover",
        "block must be a multiple of waves × mma (validate_dimension_alignment)",
        lambda v, k: _is_valid(v.validate_dimension_alignment(*k[0], *k[1], *k[2])),
    ),
    Check(
        "lds-other-pipeline",
        "A and B must fit 32 KiB, half of the LDS: compv4's limit, applied to every pipeline; the "
        "kernel's own pipeline has room for them (validate_lds_capacity)",
        lambda v, k: _fits_lds(v, k, CHECKED_AS) or not _fits_lds(v, k, k[3]),
    ),
    Check(
        "lds",
        "A and B must fit the LDS of the kernel's own pipeline (validate_lds_capacity)",
        lambda v, k: _fits_lds(v, k, CHECKED_AS) or _fits_lds(v, k, k[3]),
    ),
    Check(
        "spread",
        "A and B must be distributed evenly over the threads (validate_whole_wg_cover_configuration)",
        lambda v, k: _is_valid(v.validate_whole_wg_cover_configuration(*k[0], *k[1], LAYOUT, DTYPE, DTYPE)),
    ),
    Check(
        "mma",
        "mma must be listed for the GPU and type (validate_warp_tile_combination)",
        lambda v, k: _is_valid(v.validate_warp_tile_combination(*k[2], DTYPE, DTYPE, DTYPE, ARCH)),
    ),
    Check(
        "traits",
        "pipeline, epilogue and scheduler must go together (is_trait_combination_valid)",
        lambda v, k: _is_valid(v.is_trait_combination_valid(k[3], k[5], k[4])),
    ),
)


def _fits_lds(validation: Any, key: Key, pipeline: str) -> bool:
    return _is_valid(validation.validate_lds_capacity(*key[0], DTYPE, DTYPE, pipeline))


def find_rejecting_checks(builder: ModuleType, key: Key) -> list[str]:
    """Find all of CK's checks that reject a kernel which only we list."""
    validation = builder._validation_utils
    found = [check.name for check in CHECKS if not check.passes(validation, key)]
    return found or [UNEXPLAINED]


def format_markdown(comparison: Comparison) -> str:
    """Format the document docs/tile-engine-comparison.md."""
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
        *_format_table(("rule", "requirement", "kernels"), c.only_ck),
        "",
        "## Kernels that only we list, by tile_engine's first check that rejects them",
        "",
        *_format_table(("check", "requirement", "kernels"), c.only_ours),
        "",
        "## The same kernels, by all checks that reject them",
        "",
        "| checks | kernels |",
        "|---|---:|",
        *(f"| {row.reason} | {row.count:,} |" for row in c.only_ours_sets),
    ]
    return "\n".join(lines) + "\n"


def _format_table(head: tuple[str, str, str], rows: Iterable[Row]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|---|---:|"]
    lines += [f"| {row.reason} | {row.what} | {row.count:,} |" for row in rows]
    return [*lines, f"| total | | {sum(row.count for row in rows):,} |"]


def format_text(comparison: Comparison) -> str:
    """Format the comparison as text for a terminal."""
    c = comparison
    lines = [f"{ARCH} {DTYPE} {LAYOUT}: {c.raw:,} combinations; CK lists {c.ck:,}, ours {c.ours:,}, both {c.both:,}"]
    sides = (
        ("only CK, rejected by our rule", c.only_ck),
        ("only ours, rejected by CK's check", c.only_ours),
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
        DOCUMENT.write_text(format_markdown(comparison), encoding="utf-8")
    elif options.json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        print(format_markdown(comparison) if options.markdown else format_text(comparison))
    return 0 if comparison.adds_up() and not comparison.unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
