"""The gradient of the input where inputs meet no tap: on the emulated device nothing of the old memory is left."""

from __future__ import annotations

import itertools
import math
import subprocess
from pathlib import Path

import pytest
from on_device import device_of

from built_kernels import built
from conv_slices import written
from tilewright.building.toolchain import find_toolchain
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.grouped_conv.source import SUPPORT

pytestmark = pytest.mark.compile

CONV = find_op("grouped_conv")
SMALL = {"block": (64, 64, 32), "waves": (2, 2, 1), "mma": (16, 16, 16)}
BASE = {"direction": "backward_data", "n": 2, "c": 8, "k": 16, "dtype": "fp16"}
# Stride, dilation, filter, left pad and right pad along both dimensions, of an input of 9 × 11.
PROBLEMS = {
    "left edge": {"filter_size": 3, "stride": 2, "dilation": 3},
    "left edge, right pad": {"filter_size": 3, "stride": 3, "dilation": 2, "right_pad": 2},
    "a small left pad": {"filter_size": 3, "stride": 2, "dilation": 3, "left_pad": 2},
    "one dimension": {"filter_size": (1, 3), "stride": (1, 3), "dilation": (1, 4)},
    "the other dimension": {"filter_size": (3, 2), "stride": (2, 1), "dilation": (3, 1), "right_pad": (0, 1)},
    "inputs behind the last window": {"filter_size": 2, "stride": 4, "dilation": 3, "left_pad": 1},
    "between the taps": {"filter_size": 1, "stride": 2},
    "a common divisor": {"filter_size": 3, "stride": 2, "dilation": 2},
    "no gaps": {"filter_size": 3, "stride": 2, "dilation": 3, "left_pad": 3, "right_pad": 3},
}


@pytest.mark.parametrize("pipeline", ["compv3", pytest.param("mem", marks=pytest.mark.deep)])
def test_all_gradients_are_written(pipeline: str) -> None:
    """Outputs are filled with a pattern before, and with strides and dilations above 1 some are written by no tap."""
    fields = {"direction": "backward_data", "pipeline": pipeline, **SMALL}
    kernel = CONV.make_kernel(CONV.make_example(fields), "gfx942")
    problems = [Problem(**BASE, input_size=(9, 11), **fields) for fields in PROBLEMS.values()]
    found = verify(kernel, built([kernel])[0], device_of(kernel), problems, mode=Mode.STRICT)
    names = dict(zip(PROBLEMS, found, strict=True))
    assert {name: check.message for name, check in names.items() if not check.ok} == {}


PROGRAM = """
#include <cstdio>
#include "tilewright_grouped_conv_input_gaps.hpp"
using tilewright_grouped_conv::leaves_gaps_along;
int main()
{
    long long input, output, filter, stride, dilation, left_pad;
    while(std::scanf("%lld %lld %lld %lld %lld %lld", &input, &output, &filter, &stride, &dilation, &left_pad) == 6)
        std::putchar(leaves_gaps_along(input, output, filter, stride, dilation, left_pad) ? '1' : '0');
}
"""


def test_the_launcher_clears_where_inputs_are_left_out_and_nowhere_else(tmp_path: Path) -> None:
    """The launcher's own function, compiled for the host, against all that CK Tile's slices write."""
    name = "tilewright_grouped_conv_input_gaps.hpp"
    (tmp_path / name).write_text(Path(SUPPORT[name]).read_text())
    (tmp_path / "main.cpp").write_text(PROGRAM)
    compiler = str(find_toolchain().cxx)
    subprocess.run([compiler, "-std=c++20", "-O1", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    lines, expected = [], []
    ranges = range(1, 14), range(1, 6), range(1, 6), range(1, 6), range(5), range(4)
    for size, filter_, stride, dilation, left, right in itertools.product(*ranges):
        if size + left + right > (filter_ - 1) * dilation:
            output = (size + left + right - (filter_ - 1) * dilation - 1) // stride + 1
            lines.append(f"{size} {output} {filter_} {stride} {dilation} {left}")
            positions = written(size, output, filter_, stride, dilation, left)
            expected.append(len(set(positions)) < size)
    ran = subprocess.run([str(tmp_path / "main")], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert [answer == "1" for answer in ran.stdout] == expected
    # Those that a look at filter, stride and common divisor alone does not find are among them.
    fields = [[int(value) for value in line.split()] for line in lines]
    unseen = [gap and f >= s and math.gcd(s, d) == 1 for gap, (_, _, f, s, d, _) in zip(expected, fields, strict=True)]
    assert sum(unseen) == 1700
