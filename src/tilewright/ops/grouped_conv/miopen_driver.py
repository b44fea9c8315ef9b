"""Import problems from command lines of MIOpenDriver, the test program of AMD's MIOpen.

A line is a command as typed or as logged by MIOpen: `./bin/MIOpenDriver convfp16 -n 128 -c 256 …`. Everything before
the word MIOpenDriver is ignored; a line may also start with the layer, as in `convfp16 -n 128`.

Types and sizes are imported. Layouts are ignored: MIOpen's default is NCHW, and Tilewright's convolutions are always
channels-last. Results of 8-bit floats are fp16 and of 8-bit integers int32, the defaults of `dtype`.

Options, meanings and defaults are those of ConvDriver::AddCmdLineArgs in MIOpen's driver/conv_driver.hpp.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from tilewright.base.document_values import parse_digits
from tilewright.base.documents import read_text
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.problem_list import read_each
from tilewright.ops.problem_values import Extents

PROGRAM = "MIOpenDriver"
LAYERS = {
    "conv": "fp32",
    "convfp16": "fp16",
    "convbfp16": "bf16",
    "convfp8": "fp8",
    "convbfp8": "bf8",
    "convint8": "int8",
}

# Integers: long name → short name and default.
NUMBERS = {
    "spatial_dim": ("_", 2),
    "forw": ("F", 0),
    "batchsize": ("n", 100),
    "in_channels": ("c", 3),
    "out_channels": ("k", 32),
    "group_count": ("g", 1),
    "in_d": ("!", 32),
    "in_h": ("H", 32),
    "in_w": ("W", 32),
    "fil_d": ("@", 3),
    "fil_h": ("y", 3),
    "fil_w": ("x", 3),
    "conv_stride_d": ("#", 1),
    "conv_stride_h": ("u", 1),
    "conv_stride_w": ("v", 1),
    "pad_d": ("$", 0),
    "pad_h": ("p", 0),
    "pad_w": ("q", 0),
    "dilation_d": ("^", 1),
    "dilation_h": ("l", 1),
    "dilation_w": ("j", 1),
}
# Words that change the problem: long name → short name and default.
WORDS = {"mode": ("m", "conv"), "pad_mode": ("z", "default")}
PAD_MODES = ("default", "same", "valid")
# Options with a single value that Tilewright supports: long name → short name and that value.
FIXED = {
    "pad_val": ("r", "0"),
    "tensor_vect": ("Z", "0"),
    "vector_length": ("L", "1"),
    "in_cast_type": ("U", "-1"),
    "out_cast_type": ("T", "-1"),
    "wei_cast_type": ("R", "-1"),
}
# Options about the driver itself, tensor layouts or additional work: long name → short name.
IGNORED = {
    "in_layout": "I",
    "out_layout": "O",
    "fil_layout": "f",
    "trans_output_pad_d": "%",  # of transposed convolutions, which are rejected
    "trans_output_pad_h": "Y",
    "trans_output_pad_w": "X",
    "iter": "i",
    "verify": "V",
    "verification_cache": "C",
    "time": "t",
    "wall": "w",
    "search": "s",
    "printconv": "P",
    "dump_output": "o",
    "in_data": "d",
    "weights": "e",
    "bias": "b",  # a separate kernel
    "in_bias": "a",
    "dout_data": "D",
    "solution": "S",
    "gpualloc": "G",
    "gpubuffer_check": "~",
    "use_hip_graph": "J",
}
_SHORT = {
    **{short: name for name, (short, _) in {**NUMBERS, **WORDS, **FIXED}.items()},
    **{short: name for name, short in IGNORED.items()},
}
_LONG = {name: short for short, name in _SHORT.items()}

# The bits of --forw; 0 stands for all of them.
BITS = {1: FORWARD, 2: BACKWARD_DATA, 4: BACKWARD_WEIGHT}
_AXES = {2: "hw", 3: "dhw"}


def read_miopen_driver(path: Path | str) -> list[Problem]:
    """The problems of a file with one command per line. Blank lines and lines that start with # are ignored."""
    path = Path(path)
    lines = enumerate(read_text(path).splitlines(), 1)
    commands = ((f"line {n}", line) for n, line in lines if line.strip() and not line.lstrip().startswith("#"))
    return read_each(path, commands, parse_command)


def parse_command(line: str) -> list[Problem]:
    """The problems of one command: one for each direction that it runs."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidValueError(f"cannot be split into words: {error}") from error
    after = [i + 1 for i, word in enumerate(words) if PurePath(word).name == PROGRAM]
    words = words[after[0] :] if after else words
    if not words:
        raise InvalidValueError(f"has no layer. Known: {', '.join(LAYERS)}.")
    layer, *rest = words
    choose(f"layer of {PROGRAM}", layer, LAYERS)
    given = _parse_options(rest)
    _check_words(given)
    numbers = {name: _parse_number(given, name) for name in NUMBERS}
    sizes = _read_sizes(given, numbers)
    return [
        Problem(direction=direction, dtype=LAYERS[layer], **sizes) for direction in _list_directions(numbers["forw"])
    ]


def _parse_options(words: Sequence[str]) -> dict[str, str]:
    """Long name → value. The driver uses the last of repeated options; here they must be equal."""
    given: dict[str, str] = {}
    for name, value in _iterate_options(words):
        if given.setdefault(name, value) != value:
            raise InvalidValueError(f"{_format_option(name)} is given twice: {given[name]} and {value}")
    return given


def _iterate_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for i in range(0, len(words), 2):
        if not words[i].startswith("-"):
            raise InvalidValueError(f"{words[i]!r} is not an option, where one is expected")
        name = _find_long_name(words[i])
        if i + 1 == len(words):
            raise InvalidValueError(f"{_format_option(name)} has no value")
        yield name, words[i + 1]


def _find_long_name(option: str) -> str:
    name = option[2:] if option.startswith("--") else _SHORT.get(option[1:], "")
    if name not in _LONG:
        raise UnknownValueError(f"option of {PROGRAM}", option, (_format_option(known) for known in _LONG))
    return name


def _format_option(name: str) -> str:
    return f"--{name} -{_LONG[name]}"


def _check_words(given: Mapping[str, str]) -> None:
    if (mode := given.get("mode", "conv")) != "conv":
        raise InvalidValueError(
            f"{_format_option('mode')} is {mode}, must be conv: a transposed convolution is the backward_data of a "
            "plain one with input and output channels swapped"
        )
    choose(_format_option("pad_mode"), given.get("pad_mode", "default"), PAD_MODES)
    for name, (_, only) in FIXED.items():
        if given.get(name, only) != only:
            raise InvalidValueError(f"{_format_option(name)} is {given[name]}: only its default {only} is supported")


def _parse_number(given: Mapping[str, str], name: str) -> int:
    return parse_digits(_format_option(name), given[name]) if name in given else NUMBERS[name][1]


def _list_directions(forw: int) -> list[str]:
    most = sum(BITS)
    if forw > most:
        raise InvalidValueError(
            f"{_format_option('forw')} is {forw}, must be 0 to {most}: a sum of 1, 2 and 4, or 0 for all"
        )
    return [direction for bit, direction in BITS.items() if (forw or most) & bit]


def _read_sizes(given: Mapping[str, str], numbers: Mapping[str, int]) -> dict[str, Any]:
    """The sizes of a problem by the names of its fields."""
    ndim = numbers["spatial_dim"]
    if ndim not in _AXES:
        raise InvalidValueError(f"{_format_option('spatial_dim')} is {ndim}, must be 2 or 3")
    deep = [_format_option(name) for name in given if name.endswith("_d") and name in NUMBERS]
    if ndim == 2 and deep:
        raise InvalidValueError(f"{deep[0]} is for 3-D convolutions: add --spatial_dim 3, or leave it out")

    def get_extents(name: str) -> Extents:
        return tuple(numbers[f"{name}_{axis}"] for axis in _AXES[ndim])

    sizes = {
        "n": numbers["batchsize"],
        "g": numbers["group_count"],
        "c": numbers["in_channels"],
        "k": numbers["out_channels"],
        "input_size": get_extents("in"),
        "filter_size": get_extents("fil"),
        "stride": get_extents("conv_stride"),
        "dilation": get_extents("dilation"),
        "pad": get_extents("pad"),
    }
    return {**sizes, "pad": _compute_pads(given.get("pad_mode", "default"), sizes)}


def _compute_pads(mode: str, sizes: Mapping[str, Any]) -> Extents:
    """The pads of a pad mode. The driver uses it only for filters without dilation."""
    pads: Extents = sizes["pad"]
    filters: Extents = sizes["filter_size"]
    if mode == "default" or not (set(sizes["dilation"]) == {1} or set(filters) == {1}):
        return pads
    if mode == "valid":
        return (0,) * len(pads)
    steps = sizes["stride"]
    if 0 in steps:
        return pads  # the problem rejects such a stride
    axes = zip(sizes["input_size"], filters, steps, strict=True)
    # `same` divides the elements that the last output needs between both ends; an odd element is dropped.
    return tuple(max(size - (extent % step or step), 0) // 2 for extent, size, step in axes)
