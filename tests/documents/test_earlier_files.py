"""Files that an earlier version wrote (in `written/`) can still be read, and hold the same values.

They were written once, by version 0.1 before modules and classes were renamed, and are never written again.
"""

from __future__ import annotations

from pathlib import Path

import tilewright as tw
from bench.journalled import counted, failed, timed
from registry.registry_parts import KERNELS
from tilewright.bench.journal import read_journal
from tilewright.select.bundle import read_bundle
from tilewright.select.tuned import TunedEntry, read_tuned

WRITTEN = Path(__file__).parent / "written"


def test_a_registry_can_be_read() -> None:
    registry = tw.Registry.load(WRITTEN / "registry.json")
    assert registry.kernels == KERNELS[:3]
    assert registry.priorities == {KERNELS[0]: 2}
    assert list(registry.failures) == [KERNELS[2]]


def test_a_journal_can_be_read() -> None:
    contents = read_journal(WRITTEN / "journal")
    assert contents.records == [timed(1), counted(2), failed(3)]
    assert not contents.damaged


def test_a_tuned_table_can_be_read() -> None:
    problem = tw.gemm.Problem(m=64, n=256, k=256, dtype="fp16", layout="rcr")
    assert read_tuned(WRITTEN / "tuned.json").find_entry("gfx942", problem) == TunedEntry(KERNELS[0], problem, 9.0)


def test_a_bundle_can_be_read() -> None:
    bundle = read_bundle(WRITTEN / "bundle")
    assert (bundle.op, bundle.archs, len(bundle.forests)) == ("gemm", ("gfx942",), 1)
