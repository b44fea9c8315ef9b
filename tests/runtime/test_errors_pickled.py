"""An error that leaves its process arrives as it was: same class, same words, same facts."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright
from tilewright.base.errors import (
    CompileError,
    FileFormatError,
    FileProblem,
    MissingExtraError,
    TilewrightError,
    UnknownValueError,
)
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import Fault, MemoryFault
from tilewright.emulator.hip_shim.callbacks import MissingCallError
from tilewright.emulator.sanitizer.findings import CheckFault, Finding
from tilewright.runtime.hip import HipError, HipMemoryError

# What classes are made of whose constructor takes more than a message. Others inherit these constructors.
ARGUMENTS: dict[type[TilewrightError], tuple[Any, ...]] = {
    UnknownValueError: ("dtype", "fp61", ["fp16", "fp32"]),
    FileFormatError: ("set.toml", [FileProblem("block", "is missing"), FileProblem("", "is empty")]),
    CompileError: ("the compiler refused it", "error: no such intrinsic"),
    Fault: ("16 bytes past the end of 'y'", CodePlace(kernel="k", address=64, instruction="global_store", lane=3)),
    HipError: ("hipMalloc", 2, "hipErrorOutOfMemory", "out of memory"),
    MissingCallError: ("hipMallocArray",),
    CheckFault: ([Finding("race", "4 bytes of the LDS")],),
}


def _below(kind: type[TilewrightError]) -> Iterator[type[TilewrightError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


def _all_errors() -> list[type[TilewrightError]]:
    for module in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in _below(TilewrightError) if kind.__module__.startswith("tilewright.")}
    ours = {kind for kind in ours if not kind.__name__.startswith("_")}  # those never leave their module
    return sorted(ours, key=lambda kind: kind.__qualname__)


def _made(kind: type[TilewrightError]) -> TilewrightError:
    for maker in kind.__mro__:
        if maker in ARGUMENTS:
            return kind(*ARGUMENTS[maker])
        if "__init__" in vars(maker):
            # An exception of Python's own takes any arguments. One of ours must be listed.
            assert not issubclass(maker, TilewrightError), f"{kind}: say in ARGUMENTS what {maker} is made of"
            break
    return kind("a message")


def test_every_error_can_be_pickled() -> None:
    kinds = _all_errors()
    assert len(kinds) > 30 and {HipMemoryError, MemoryFault, MissingExtraError} <= set(kinds)
    for kind in kinds:
        error = _made(kind)
        error.add_note("raised by: a test")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is kind
            assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error)), kind
            assert again.__notes__ == ["raised by: a test"]


def test_what_an_error_carries_arrives() -> None:
    memory = pickle.loads(pickle.dumps(_made(HipMemoryError)))
    assert (memory.what, memory.status, memory.hip_name) == ("hipMalloc", 2, "hipErrorOutOfMemory")
    assert str(memory) == (
        "hipMalloc: hipErrorOutOfMemory (2): out of memory. Free buffers, or use a device with more memory."
    )
    fault = pickle.loads(pickle.dumps(_made(MemoryFault)))
    assert str(fault).startswith("memory-fault: 16 bytes") and fault.place.lane == 3
    # Python's ImportError has fields of its own, which its constructor fills.
    assert pickle.loads(pickle.dumps(MissingExtraError("install ray"))).msg == "install ray"


def test_a_class_of_others_needs_nothing_of_its_own() -> None:
    assert inspect.signature(OwnError).parameters.keys() == {"number", "limit"}
    again = pickle.loads(pickle.dumps(OwnError(7, limit=5)))
    assert (str(again), again.number) == ("7 is above 5", 7)
    with pytest.raises(OwnError):
        raise again


class OwnError(TilewrightError):
    def __init__(self, number: int, *, limit: int) -> None:
        self.number = number
        super().__init__(f"{number} is above {limit}")
