"""Public names of packages that are imported on first use, so that importing a package costs next to nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.extras import raise_missing_extra


def import_on_use(
    package: str, homes: Mapping[str, tuple[str, ...]], own: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and the `__dir__` of a package from the modules that define its public names.

    `own` are the public names that the package defines itself.
    A public name must not be the name of one of the package's own modules: importing the module would hide the name.
    """
    modules = {name: module for module, names in homes.items() for name in names}
    public = sorted((*modules, *own))

    def get_name(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(public)}")
        try:
            found = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise_missing_extra(f"{package}.{name}", error)
        # Later uses find the name without this function, which takes longer than a launch.
        vars(sys.modules[package])[name] = found
        return found

    def list_names() -> list[str]:
        return public

    return get_name, list_names
