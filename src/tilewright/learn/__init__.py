"""Measurements, models trained on them, and evaluation of their choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.learn.efficiency import Efficiency, evaluate_scores
    from tilewright.learn.measurements import (
        Measurement,
        Measurements,
        make_table,
        read_measurements,
        write_measurements,
    )
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.learn.efficiency": ("Efficiency", "evaluate_scores"),
            "tilewright.learn.measurements": (
                "Measurement",
                "Measurements",
                "make_table",
                "read_measurements",
                "write_measurements",
            ),
        },
    )

__all__ = [
    "Efficiency",
    "Measurement",
    "Measurements",
    "evaluate_scores",
    "make_table",
    "read_measurements",
    "write_measurements",
]
