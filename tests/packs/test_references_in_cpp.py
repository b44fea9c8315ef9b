"""References on the host and profiles of C++ programs, against those of Python."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from c_problems import GPU, StandIns, to_c, whole_fields
from tilewright import arch as archs
from tilewright.ops import find_op, gemm, grouped_conv

pytestmark = pytest.mark.compile
PROGRAM = Path(__file__).with_name("references.cpp")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-g", "-fsanitize=address,undefined")
PROBLEMS = 150
TYPES = ("fp16", "bf16", "fp32", "fp8", "int8")
FUNCTIONS = ("MultiDAdd", "MultiDMultiply", "Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh")


@pytest.fixture(scope="module")
def program(stand_ins: StandIns) -> Path:
    made = stand_ins.folder / "references"
    words = ("g++", *STRICT, f"-I{stand_ins.folder}/include", str(PROGRAM), "-o", str(made), "-ldl")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return made


def run(program: Path, stand_ins: StandIns, *words: object) -> subprocess.CompletedProcess[str]:
    command = ("env", "ASAN_OPTIONS=detect_leaks=0", program, stand_ins.file, *words)
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def draw_gemms(random: np.random.Generator) -> Iterator[Any]:
    for number in range(PROBLEMS):
        m, n, k = (int(size) for size in random.integers(1, 24, 3))
        layout = str(random.choice(["rcr", "rrr", "crr", "ccr"]))
        line = {"stride_a": k if layout[0] == "r" else m, "stride_b": n if layout[1] == "r" else k, "stride_c": n}
        strides = {name: size + int(random.integers(0, 3)) for name, size in line.items()}
        dtype = TYPES[number % len(TYPES)]
        ds: dict[str, Any] = {}
        if number % 3 == 0 and dtype != "int8":
            count = int(random.integers(1, 3))
            rows = int(random.integers(0, count + 1))
            ds = {"num_d": count, "num_row_d": rows, "elementwise": FUNCTIONS[number // 3 % len(FUNCTIONS)]}
        batch = 1 if ds else int(random.integers(1, 4))
        yield gemm.Problem(m=m, n=n, k=k, dtype=dtype, layout=layout, batch=batch, **strides, **ds)


def draw_convolutions(random: np.random.Generator) -> Iterator[Any]:
    for number in range(PROBLEMS):
        ndim = number % 3 + 1
        draw = lambda low, high, size=ndim: tuple(int(each) for each in random.integers(low, high, size))  # noqa: E731
        g = int(random.integers(1, 4))
        yield grouped_conv.Problem(
            direction=("forward", "backward_data", "backward_weight")[number // 3 % 3],
            n=int(random.integers(1, 4)),
            g=g,
            c=g * int(random.integers(1, 5)),
            k=g * int(random.integers(1, 5)),
            input_size=draw(6, 9),
            filter_size=draw(1, 4),
            stride=draw(1, 3),
            dilation=draw(1, 3),
            left_pad=draw(0, 3),
            right_pad=draw(0, 3),
            dtype=("fp16", "bf16", "fp32")[number % 3 if number % 2 else 0],
        )


def make_numbers(count: int, state: int) -> tuple[list[float], int]:
    """Whole numbers from -2 to 2, as C++ draws them."""
    found = []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        found.append(float((state >> 16) % 5 - 2))
    return found, state


@pytest.mark.parametrize("op", ["gemm", "grouped_conv"])
def test_references_are_those_of_python(op: str, program: Path, stand_ins: StandIns, tmp_path: Path) -> None:
    draw = {"gemm": draw_gemms, "grouped_conv": draw_convolutions}[op]
    problems = list(draw(np.random.default_rng(3)))
    execution, arch = find_op(op).execution, archs.load(GPU)
    assert execution is not None
    file, numbers = tmp_path / "problems", tmp_path / "numbers"
    file.write_bytes(b"".join(bytes(to_c(op, whole_fields(problem))) for problem in problems))
    done = run(program, stand_ins, op, file, numbers)
    assert done.returncode == 0, done.stderr
    words, at = np.fromfile(numbers, np.float64), 0
    for problem, line in zip(problems, done.stdout.splitlines(), strict=True):
        state, given, expected = 7, {}, {}
        sizes = dict(pair.split("=") for pair in line.split())
        for tensor in execution.tensors(problem):
            count = int(sizes[tensor.name])
            assert count == 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
            flat = words[at : at + count]
            at += count
            drawn, state = make_numbers(count, state)
            steps = tuple(8 * step for step in tensor.strides)
            if tensor.output:
                expected[tensor.name] = as_strided(flat, tensor.shape, steps)
            else:
                assert flat.tolist() == drawn
                given[tensor.name] = as_strided(flat, tensor.shape, steps)
        reference = execution.reference(problem, given, arch)
        assert reference.keys() == expected.keys()
        rounded = getattr(problem, "elementwise", "PassThrough") in FUNCTIONS[3:]  # of exp, erf and tanh
        for name, own in expected.items():
            assert np.isfinite(own).all() and math.prod(own.shape) > 0
            if rounded:
                np.testing.assert_allclose(own, reference[name], rtol=1e-12, atol=1e-300)
            else:
                np.testing.assert_array_equal(own, reference[name])
    assert at == len(words)


def test_profiles_are_those_of_python(program: Path, stand_ins: StandIns) -> None:
    arch = archs.load(GPU)
    wanted = {
        name: [
            kernel.slug for kernel in stand_ins.kernels if kernel.op == "fmha" and profile.wants(kernel.config, arch)
        ]
        for name, profile in find_op("fmha").profiles.items()
    }
    aliases = {alias: name for name, profile in find_op("fmha").profiles.items() for alias in profile.aliases}
    assert len(wanted) >= 6 and len(aliases) >= 8
    assert sum(map(bool, wanted.values())) >= 4, "profiles with kernels"
    done = run(program, stand_ins, "profiles", *wanted, *aliases)
    assert done.returncode == 0, done.stderr
    by_profile = [line for line in done.stdout.splitlines() if not line.startswith("- ")]
    found = {name: slugs.split() for name, _, slugs in (line.partition(":") for line in by_profile)}
    assert found == wanted | {alias: wanted[name] for alias, name in aliases.items()}
    pairs = {tuple(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("- ")}
    assert pairs == {(slug, name) for name, slugs in wanted.items() for slug in slugs}


@pytest.mark.parametrize("name", ["vllm", "2,3", ""])
def test_an_unknown_profile_is_an_error(name: str, program: Path, stand_ins: StandIns) -> None:
    done = run(program, stand_ins, "profiles", name)
    assert done.returncode == 2
    known = ", ".join(sorted(find_op("fmha").profiles))
    assert done.stderr == f"unknown profile '{name}'. Known to the ops of this registry: {known}.\n"
