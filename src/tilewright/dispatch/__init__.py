"""From a problem to a launch: kernel selection, tensor preparation, and the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.dispatch.dispatcher import read_resource_usage
    from tilewright.dispatch.plan import Plan
    from tilewright.dispatch.verify import Check
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.dispatch.plan": ("Plan",),
            "tilewright.dispatch.dispatcher": ("read_resource_usage",),
            "tilewright.dispatch.verify": ("Check",),
        },
    )

__all__ = [
    "Check",
    "Plan",
    "read_resource_usage",
]
