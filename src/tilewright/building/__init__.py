"""Toolchain, CK headers, kernel builds, code object inspection, the artifact store and packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.building.compile import compile_device
    from tilewright.building.pack.manifest import read_pack
    from tilewright.building.pack.write import write_pack
    from tilewright.building.store.local import Store
    from tilewright.building.store.tiers import Tiers, open_tiers
    from tilewright.building.toolchain import Toolchain, find_toolchain
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.building.compile": ("compile_device",),
            "tilewright.building.pack.manifest": ("read_pack",),
            "tilewright.building.pack.write": ("write_pack",),
            "tilewright.building.store.local": ("Store",),
            "tilewright.building.store.tiers": ("Tiers", "open_tiers"),
            "tilewright.building.toolchain": ("Toolchain", "find_toolchain"),
        },
    )

__all__ = [
    "Store",
    "Tiers",
    "Toolchain",
    "compile_device",
    "find_toolchain",
    "open_tiers",
    "read_pack",
    "write_pack",
]
