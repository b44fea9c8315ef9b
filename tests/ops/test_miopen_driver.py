"""Command lines of MIOpenDriver as convolution problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.ops.grouped_conv.config import DIRECTIONS
from tilewright.ops.grouped_conv.miopen_driver import FIXED, IGNORED, NUMBERS, WORDS, parse_command, read_miopen_driver
from tilewright.ops.grouped_conv.problem import Problem

LINE = (
    "./bin/MIOpenDriver convbfp16 -n 128 -c 256 -H 28 -W 30 -k 512 -y 3 -x 5 -p 1 -q 2 -u 2 -v 1 -l 1 -j 2 -m conv "
    "-g 4 -F 1 -t 1"
)
EXPECTED: dict[str, Any] = {
    "n": 128,
    "g": 4,
    "c": 256,
    "k": 512,
    "input_size": (28, 30),
    "filter_size": (3, 5),
    "stride": (2, 1),
    "dilation": (1, 2),
    "pad": (1, 2),
    "dtype": "bf16",
}


def test_a_line_as_people_have_it() -> None:
    assert parse_command(LINE) == [Problem(direction="forward", **EXPECTED)]


@pytest.mark.parametrize(
    "line",
    [
        LINE.removeprefix("./bin/MIOpenDriver "),
        f"MIOPEN_FIND_MODE=1 /opt/rocm/bin/{LINE.removeprefix('./bin/')}",
        f"MIOpen(HIP): Command [LogCmdConvolution] {LINE}",
        f"{LINE} --in_layout NHWC --fil_layout NHWC --out_layout NHWC -V 0 -i 20 -w 1 -s 1 -S ConvHipImplicitGemm",
        f"{LINE} -F 1",
        "convbfp16 --batchsize 128 --in_channels 256 --in_h 28 --in_w 30 --out_channels 512 --fil_h 3 --fil_w 5 "
        "--pad_h 1 --pad_w 2 --conv_stride_h 2 --conv_stride_w 1 --dilation_h 1 --dilation_w 2 --mode conv "
        "--group_count 4 --forw 1 --time 1 --spatial_dim 2",
    ],
)
def test_other_ways_to_write_it(line: str) -> None:
    assert parse_command(line) == parse_command(LINE)


def test_what_a_line_does_not_say() -> None:
    size = {"n": 100, "c": 3, "k": 32, "input_size": (32, 32), "filter_size": (3, 3), "dtype": "fp32"}
    assert parse_command("conv") == [Problem(direction=direction, **size) for direction in DIRECTIONS]


@pytest.mark.parametrize(
    ("forw", "directions"),
    [
        (0, DIRECTIONS),
        (1, ["forward"]),
        (2, ["backward_data"]),
        (3, ["forward", "backward_data"]),
        (4, ["backward_weight"]),
        (6, ["backward_data", "backward_weight"]),
        (7, DIRECTIONS),
    ],
)
def test_directions(forw: int, directions: list[str]) -> None:
    assert [problem.direction for problem in parse_command(f"conv -F {forw}")] == list(directions)


@pytest.mark.parametrize(
    ("layer", "types"),
    [
        ("conv", ("fp32", "fp32")),
        ("convfp16", ("fp16", "fp16")),
        ("convbfp16", ("bf16", "bf16")),
        ("convfp8", ("fp8", "fp16")),
        ("convbfp8", ("bf8", "fp16")),
    ],
)
def test_types(layer: str, types: tuple[str, str]) -> None:
    problem = parse_command(layer)[0]
    assert (problem.dtype_a, problem.dtype_b, problem.dtype_c) == (types[0], *types)


def test_three_dimensions() -> None:
    line = (
        "convfp16 -_ 3 -! 8 -H 9 -W 10 -@ 1 -y 3 -x 5 -# 2 -u 1 -v 3 -$ 0 -p 1 -q 2 -^ 1 -l 2 -j 1 -n 1 -c 4 -k 4 -F 4"
    )
    (problem,) = parse_command(line)
    expected = Problem(
        direction="backward_weight",
        n=1,
        c=4,
        k=4,
        input_size=(8, 9, 10),
        filter_size=(1, 3, 5),
        stride=(2, 1, 3),
        dilation=(1, 2, 1),
        pad=(0, 1, 2),
        dtype="fp16",
    )
    assert problem == expected
    long = "--spatial_dim 3 --in_d 8 --fil_d 1 --conv_stride_d 2 --pad_d 0 --dilation_d 1"
    rest = "-H 9 -W 10 -y 3 -x 5 -u 1 -v 3 -p 1 -q 2 -l 2 -j 1 -n 1 -c 4 -k 4 -F 4"
    assert parse_command(f"convfp16 {long} {rest}") == [expected]


@pytest.mark.parametrize(
    ("options", "pads"),
    [
        ("-z default -p 5 -q 0", (5, 0)),
        ("-z valid -p 5 -q 5", (0, 0)),
        ("-z same -y 3 -x 5", (1, 2)),
        ("-z same -y 7 -x 3 -u 2 -v 2 -H 224 -W 225", (2, 1)),
        ("-z same -y 1 -x 1 -u 2 -v 2", (0, 0)),
        ("-z same -y 3 -x 3 -l 2 -j 2 -p 4 -q 3", (4, 3)),
        ("-z same -y 1 -x 1 -l 2 -j 2 -p 4 -q 3", (0, 0)),
    ],
)
def test_pad_modes(options: str, pads: tuple[int, int]) -> None:
    problem = parse_command(f"conv -F 1 {options}")[0]
    assert (problem.left_pad, problem.right_pad) == (pads, pads)


def test_no_two_options_share_a_name() -> None:
    shorts = [short for short, _ in (*NUMBERS.values(), *WORDS.values(), *FIXED.values())] + list(IGNORED.values())
    longs = [*NUMBERS, *WORDS, *FIXED, *IGNORED]
    assert len(shorts) == len(longs) == len(set(shorts)) == len(set(longs))
    assert all(len(short) == 1 for short in shorts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pool -n 3", "unknown layer of MIOpenDriver 'pool'. Known: conv, convfp16, convbfp16, convfp8"),
        ("./MIOpenDriver", "has no layer"),
        ("conv -n 3 -B 4", "unknown option of MIOpenDriver '-B'. Known: --forw -F, --in_d"),
        ("conv --in_channel 4", "Did you mean '--in_channels -c'?"),
        ("conv -n128", "unknown option of MIOpenDriver '-n128'"),
        ("conv --batchsize=3", "unknown option of MIOpenDriver '--batchsize=3'"),
        ("conv - 3", "unknown option of MIOpenDriver '-'"),
        ("conv -n", "--batchsize -n has no value"),
        ("conv 128 -c 3", "'128' is not an option, where one is expected"),
        ("conv -p -1", "--pad_h -p must be an integer of at most 20 digits, got '-1'"),
        ("conv -n 3 --batchsize 4", "--batchsize -n is given twice: 3 and 4"),
        ("conv -n 0", "n is 0, must be at least 1"),
        ("conv -c 6 -k 8 -g 4", "c = 6 channels cannot be divided among g = 4 groups"),
        ("conv -H 2", "the output would be empty"),
        ("conv -F 8", "--forw -F is 8, must be 0 to 7"),
        ("conv -m trans", "--mode -m is trans, must be conv"),
        ("conv -z full", "unknown --pad_mode -z 'full'."),
        ("conv -z same -u 0", "stride is 0, must be at least 1"),
        ("conv --spatial_dim 1", "must be 2 or 3"),
        ("conv --in_d 4", "--in_d -! is for 3-D convolutions"),
        ("conv -r 1", "--pad_val -r is 1: only its default 0"),
        ("convfp16 -T fp8", "--out_cast_type -T is fp8"),
        ("conv -C 'a", "cannot be split into words: No closing quotation"),
    ],
)
def test_what_cannot_be_meant(line: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_command(line)
    assert message in str(caught.value)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "convs.txt"
    path.write_text(f"# the first\n{LINE}\n\n   # the second\n  conv -F 6  \n")
    assert read_miopen_driver(path) == parse_command(LINE) + parse_command("conv -F 6")
    path.write_text(f"conv -n 0\n{LINE}\n\nlrn\n")
    with pytest.raises(FileFormatError) as caught:
        read_miopen_driver(path)
    assert [problem.where for problem in caught.value.problems] == ["line 1", "line 4"]
