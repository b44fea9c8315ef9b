"""Modules that are imported when they are first used, because importing them takes longer than most programs run."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module. Its first use imports the module; every attribute is looked up there once."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)  # later uses find it without this function
        return found
