"""Kernel selection, with reasons: tuned tables, rules, estimates, learned models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.select.c_source import render_rank_sources
    from tilewright.select.tuned import TunedTable, read_tuned, write_tuned
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.select.c_source": ("render_rank_sources",),
            "tilewright.select.tuned": ("TunedTable", "read_tuned", "write_tuned"),
        },
    )

__all__ = [
    "TunedTable",
    "read_tuned",
    "render_rank_sources",
    "write_tuned",
]
