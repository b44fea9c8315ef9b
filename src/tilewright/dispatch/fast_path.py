"""The fast path of a launch: a function for one problem, its tensor specs and its kernels.

It does the same as `BoundKernel` and `CallSequence`, with everything precomputed that does not depend on addresses and
stream. The function is generated for the number of tensors and kernels, as `dataclasses` generates `__init__`: loops
over them would take longer than the launch. Its overhead over the bare call is measured by tools/bench_dispatch.py, and
each line of the generated source was chosen by that.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from tilewright.dispatch.launch import BoundKernel, CallSequence
from tilewright.dispatch.run_tensors import DisjointPair
from tilewright.dispatch.tensors import TensorSpec
from tilewright.runtime.device_objects import get_stream_handle

# Arguments as in `Registry.run`: tensors, out, stream, device, kernel, pad, prepared.
FastPath = Callable[[tuple[Any, ...], Any, Any, Any, Any, Any, Any], Any]
# Larger than any address on x86-64 or arm64, and never the size of a problem.
_MARK = 0x7EED_C0DE_0000_0000
_STEP = 1 << 20
_WORD = 8


class ArgumentTemplate(NamedTuple):
    """An argument struct, split at its addresses: `pack` joins `parts`, with an address for each index in them."""

    pack: Callable[..., bytes]
    parts: tuple[bytes | int, ...]


def make_argument_template(make_arguments: Callable[[Sequence[int]], Any], count: int) -> ArgumentTemplate | None:
    """The template of a struct that `make_arguments` fills with this number of addresses, at any offsets.

    None if something else in the struct depends on the addresses. Detected with unique numbers as addresses: the first
    are aligned and ascending, the second unaligned and descending.
    """
    first = [_MARK + _STEP * index for index in range(count)]
    second = [_MARK + _STEP * (count - index) + 1 for index in range(count)]
    marked = bytes(make_arguments(first))
    parts: list[bytes | int] = []
    end = 0
    for offset, index in sorted(_find_marks(marked, first)):
        parts += [marked[end:offset], index]
        end = offset + _WORD
    parts = [part for part in (*parts, marked[end:]) if part != b""]
    layout = "".join("Q" if isinstance(part, int) else f"{len(part)}s" for part in parts)
    template = ArgumentTemplate(struct.Struct(f"={layout}").pack, tuple(parts))
    packed = template.pack(*(second[part] if isinstance(part, int) else part for part in parts))
    return template if packed == bytes(make_arguments(second)) else None


def _find_marks(content: bytes, marks: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The offsets of each mark, with its index."""
    for index, mark in enumerate(marks):
        offset = -1
        while (offset := content.find(struct.pack("=Q", mark), offset + 1)) >= 0:
            yield offset, index


class _DeviceCells(threading.local):
    """Each thread's variable for the index of its current device: a reference to it, and a view to read it."""

    def __init__(self) -> None:
        cell = (ctypes.c_int * 1)(-1)
        self.pair = (ctypes.byref(cell), memoryview(cell).cast("B").cast("i"))


_cells = _DeviceCells()


def make_fast_path(
    call: BoundKernel | CallSequence,
    forms: Sequence[TensorSpec],
    pairs: Sequence[DisjointPair],
    outputs: int,
    options: tuple[Any, Any, Any, Any],
    otherwise: FastPath,
) -> FastPath | None:
    """The fast path for tensors of these specs (the outputs last) and exactly these options. Other calls go to
    `otherwise`.

    So do tensors whose spans overlap: `otherwise` checks whether they share elements. Returns None if the arguments of
    a kernel depend on addresses in other ways than by containing them.
    """
    kernels = call.route_addresses(len(forms))
    templates = [make_argument_template(kernel.make_arguments, len(route)) for kernel, route in kernels]
    device, hip = call.device, call.device.load_hip()
    values = {
        "otherwise": otherwise,
        "get_stream_handle": get_stream_handle,
        "get_memory": call.get_memory,
        "hip": hip,
        "make_current": device.make_current,
        "get_device": hip.make_device_reader(),
        "cells": _cells,
        "index": device.index,
        **{f"form{index}": form for index, form in enumerate(forms)},
        **dict(zip(("device_", "kernel_", "pad_", "prepared_"), options, strict=True)),
    }
    packed = []
    for number, ((kernel, route), template) in enumerate(zip(kernels, templates, strict=True)):
        if template is None:
            return None
        names = []
        for place, part in enumerate(template.parts):
            if isinstance(part, int):
                names.append(f"a{route[part]}")
            else:
                names.append(f"part{number}_{place}")
                values[names[-1]] = part
        packed.append(", ".join(names))
        values |= {f"pack{number}": template.pack, f"run{number}": kernel.functions.run, f"fail{number}": kernel.fail}
    for number, pair in enumerate(pairs):
        values |= {f"least{number}": pair.least, f"most{number}": pair.most}
    addresses = max(len(forms), *(1 + index for _, route in kernels for index in route))
    values["last"] = (None,) * (addresses + len(kernels))
    source = _write_source(len(forms), outputs, addresses, pairs, packed, several=hip.count() > 1)
    exec(_compile_source(source), values)
    launch: FastPath = values["launch"]
    return launch


@functools.lru_cache(maxsize=256)
def _compile_source(source: str) -> CodeType:
    """Problems of one op mostly share their source, and compiling takes longer than the rest of the first call."""
    return compile(source, "<fast path of tilewright.dispatch>", "exec")


def _write_source(
    tensors: int, outputs: int, addresses: int, pairs: Sequence[DisjointPair], packed: Sequence[str], *, several: bool
) -> str:
    """The source of a fast path. The tensors are t0, t1 …; their addresses and those of the plan's memory a0, a1 …

    `last` has the addresses and structs of the last launch. The same address objects need no second comparison of
    spans and no second struct; they are compared by identity, which is faster than by value and keeps no tensor alive.
    It is one tuple, so that threads never see a part of another launch.

    `packed` has the parts of each kernel's struct. With `several` devices in the process, the thread's current device
    is compared: launches go there.
    """
    inputs = tensors - outputs
    own = [f"t{index}" for index in range(tensors)]
    all_, old = _name_items("a", addresses), _name_items("b", addresses)
    structs = _name_items("args", len(packed))
    forms = " and ".join(f"{name}.form is form{index}" for index, name in enumerate(own))
    overlaps = " or ".join(f"least{n} < a{pair.output} - a{pair.other} < most{n}" for n, pair in enumerate(pairs))
    same = " and ".join(f"{new} is {before}" for new, before in zip(all_, old, strict=True))
    calls = [f"if status := run{n}({args}, stream): fail{n}(status)" for n, args in enumerate(structs)]
    elsewhere = "hip.forked or get_device(place) or cell[0] != index" if several else "hip.forked"
    back = "return otherwise(tensors, out, stream, device, kernel, pad, prepared)"
    memory = all_[tensors:]
    taken = f"{own[-1]} = out" if outputs == 1 else f"{_join_items(own[inputs:])} = out if type(out) is tuple else ()"
    return "\n".join(
        [
            "def launch(tensors, out, stream, device, kernel, pad, prepared):",
            " global last",
            " try:",
            f"  {_join_items(own[:inputs])} = tensors",
            f"  {taken}",
            f"  known = {forms} and device is device_ and kernel is kernel_ and pad is pad_ and prepared is prepared_",
            " except (AttributeError, ValueError):",
            "  known = False",
            " if not known:",
            f"  {back}",
            " if stream is not None and type(stream) is not int:",
            "  stream = get_stream_handle(stream)",
            *(f" a{index} = {name}.address" for index, name in enumerate(own)),
            *([f" {_join_items(memory)} = get_memory(stream or 0)"] if memory else []),
            f" {_join_items([*old, *structs])} = last",
            f" if not ({same}):",
            *([f"  if {overlaps}:", f"   {back}"] if overlaps else []),
            *(f"  {args} = pack{n}({parts})" for n, (args, parts) in enumerate(zip(structs, packed, strict=True))),
            f"  last = {_join_items([*all_, *structs])}",
            *([" place, cell = cells.pair"] if several else []),
            f" if {elsewhere}:",
            "  with make_current():",
            *(f"   {line}" for line in calls),
            " else:",
            *(f"  {line}" for line in calls),
            " return out",
        ]
    )


def _name_items(letter: str, count: int) -> list[str]:
    return [f"{letter}{index}" for index in range(count)]


def _join_items(names: Sequence[str]) -> str:
    """A tuple of names, also of one."""
    return ", ".join(names) + ","
