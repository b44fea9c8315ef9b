"""Our own libraries: compiled on the machine they run on and kept in the store like kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilewright.base.errors import CorruptError
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store


def build_own_library(store: Store, key: str, name: str, compile_in: Callable[[Path], Mapping[str, Any]]) -> Path:
    """Return the verified file `name` of the entry `key`; compile it if it is missing or damaged.

    `compile_in` writes the file into an empty private folder and returns the facts to store with it.
    """
    # Waits for another process that compiles it.
    with store.lock_build(key, already_built=lambda: isinstance(store.get(key), Artifact)):
        found = _find_verified(store, key, name)
        if found is not None:
            return found
        with store.create_work_folder("library") as folder:
            facts = compile_in(folder)
            return store.put(key, {name: folder / name}, facts).verify_file(name)


def _find_verified(store: Store, key: str, name: str) -> Path | None:
    found = store.get(key)
    if not isinstance(found, Artifact) or name not in found.files:
        return None
    try:
        return found.verify_file(name)
    except CorruptError:
        return None  # reported and moved by `verify_file`
