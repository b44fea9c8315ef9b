"""Single instructions with edges and random numbers, compared with integers and fractions: see isa_oracles.py."""

from __future__ import annotations

import math
from collections.abc import Iterable

import isa_oracles as oracles
import numpy as np
import pytest
from assembled import LANES
from both_engines import run_both
from edge_values import edge_values

pytestmark = pytest.mark.compile

GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SCALAR_LANES = 24  # operands of scalar instructions: each is an instruction of its own
DENORMALS = ".amdhsa_float_denorm_mode_32 3"  # neither inputs nor results become zero
# CI leaves out the oldest of the three GPUs of CDNA.
each_gpu = pytest.mark.parametrize(
    "gpu", [each if each != "gfx90a" else pytest.param(each, marks=pytest.mark.deep) for each in GPUS]
)
each_length = pytest.mark.parametrize("rounds", [1, pytest.param(64, marks=pytest.mark.deep)])


def list_scalar(gpu: str) -> dict[str, oracles.Scalar]:
    old, last = gpu.startswith("gfx9"), gpu == "gfx1201"
    return {
        **oracles.SCALAR,
        **(oracles.GFX9_SCALAR if old else oracles.RDNA_SCALAR),
        **(oracles.GFX12_SCALAR if last else oracles.OLD_SCALAR),
    }


def list_vector(gpu: str) -> dict[str, oracles.Vector]:
    more = {
        "gfx90a": {**oracles.GFX9_VECTOR, **oracles.GFX90A_VECTOR},
        "gfx942": {**oracles.GFX9_VECTOR, **oracles.FNUZ_VECTOR},
        "gfx950": {**oracles.GFX9_VECTOR, **oracles.OCP_VECTOR},
        "gfx1100": {},
        "gfx1201": {**oracles.OCP_VECTOR, **oracles.GFX12_VECTOR},
    }
    return {**oracles.VECTOR, **more[gpu]}


def find_kind(text: str) -> str:
    """The type of an instruction's operands, by its name: with its edges, it meets what may go wrong."""
    name = text.split(maxsplit=1)[0]
    if name.startswith(("v_mac", "v_madmk")):
        return "normal"  # they never keep subnormal numbers
    if "mix" in name:
        return "mixed"
    return "integer" if "f32" not in name or "cvt_f32" in name else "float"


def make_words(kind: str, lanes: int, seed: int) -> np.ndarray:
    if kind == "normal":
        return np.random.default_rng(seed).normal(0, 10, lanes).astype(np.float32).view(np.uint32)
    if kind == "integer":
        return edge_values(np.dtype(np.uint32), lanes, seed)
    words = edge_values(np.dtype(np.float32), lanes, seed)
    words = np.where(np.isnan(words), np.float32(np.nan), words).view(np.uint32)  # signalling ones are no numbers
    if kind == "float":
        return words
    return np.where(np.arange(lanes) % 2, edge_values(np.dtype(np.float16), 2 * lanes, seed).view(np.uint32), words)


def group_kinds(texts: Iterable[str]) -> dict[str, list[str]]:
    """Instructions by the type of their operands: those of one type share a kernel, which takes less time."""
    found: dict[str, list[str]] = {}
    for text in texts:
        found.setdefault(find_kind(text), []).append(text)
    return found


def join(low: np.ndarray, high: np.ndarray) -> list[int]:
    return [int(a) | int(b) << 32 for a, b in zip(low, high, strict=True)]


def is_right(text: str, found: int, want: int, bits: int) -> bool:
    """Equal bits, or both no number."""
    found, want = found % (1 << bits), want % (1 << bits)
    code = {16: "e", 32: "f"}.get(bits)
    name = text.split(maxsplit=1)[0]
    if found == want or code is None or "f" not in name or name == "s_cvt_u32_f32":
        return found == want
    return math.isnan(oracles.to_float(found, code)) and math.isnan(oracles.to_float(want, code))


@each_gpu
@each_length
def test_scalar_instructions(gpu: str, rounds: int) -> None:
    expected = list_scalar(gpu)
    for kind, texts in group_kinds(expected).items():
        lines = [f"v_mov_b32 v{10 + k}, 0" for k in range(3 * len(texts))]
        for lane in range(SCALAR_LANES):
            for number, text in enumerate(texts):
                lines += [f"v_readlane_b32 s{20 + k}, v{2 + k}, {lane}" for k in range(6)]
                lines += ["s_cmp_eq_u32 0, 0" if lane & 1 else "s_cmp_lg_u32 0, 0", text, "s_cselect_b32 s26, 1, 0"]
                lines += [f"v_writelane_b32 v{10 + 3 * number + k}, s{24 + k}, {lane}" for k in range(3)]
        for round_ in range(rounds):
            given = {2 + k: make_words(kind, LANES[gpu], 10 * round_ + k) for k in range(6)}
            made = run_both(gpu, lines, given, range(10, 10 + 3 * len(texts)), directives=DENORMALS)
            operands = [join(given[2 + 2 * k], given[3 + 2 * k]) for k in range(3)]
            for number, text in enumerate(texts):
                low, high, carries = made[3 * number : 3 * number + 3]
                for lane, found in enumerate(join(low, high)[:SCALAR_LANES]):
                    values = [each[lane] for each in operands]
                    want, carry = expected[text](*values)
                    assert int(carries[lane]) == (lane & 1 if carry is None else carry), (text, values)
                    right = is_right(text, found % 2**32, want % 2**32, 32) and found >> 32 == want >> 32
                    assert right, (text, [hex(value) for value in values], hex(found), hex(want))


@each_gpu
@each_length
def test_vector_instructions(gpu: str, rounds: int) -> None:
    expected, mask = list_vector(gpu), "s[10:11]" if gpu.startswith("gfx9") else "s10"
    for kind, texts in group_kinds(expected).items():
        lines = []
        for number, text in enumerate(texts):
            lines += ["v_mov_b32 v10, v8", "v_mov_b32 v11, v9", text.replace("MASK", mask)]
            lines += [f"v_mov_b32 v{20 + 2 * number}, v10", f"v_mov_b32 v{21 + 2 * number}, v11"]
        for round_ in range(rounds):
            given = {2 + k: make_words(kind, LANES[gpu], 10 * round_ + k) for k in range(8)}
            made = run_both(gpu, lines, given, range(20, 20 + 2 * len(texts)), directives=DENORMALS)
            operands = [join(given[place], given[place + 1]) for place in (2, 4, 6, 8)]
            for number, text in enumerate(texts):
                expect, bits = expected[text]
                for lane, found in enumerate(join(made[2 * number], made[2 * number + 1])):
                    values = [each[lane] for each in operands]
                    want = expect(*values)
                    assert is_right(text, found, want, bits), (text, [hex(v) for v in values], hex(found), hex(want))


@each_gpu
@each_length
def test_comparisons(gpu: str, rounds: int) -> None:
    old = gpu.startswith("gfx9")
    mask, active, move = ("s[10:11]", "exec", "s_mov_b64") if old else ("s10", "exec_lo", "s_mov_b32")
    for kind, names in group_kinds(oracles.COMPARE).items():
        lines = []
        for number, name in enumerate(names):
            bits, _ = oracles.COMPARE[name]
            half = ".l" if bits == 16 and gpu == "gfx1100" else ""
            left, right = ("v[2:3]", "v[4:5]") if bits == 64 else (f"v2{half}", f"v4{half}")
            first, second = 20 + 2 * number, 21 + 2 * number
            lines += [f"v_mov_b32 v{second}, 0", f"v_cmp_{name}_e64 {mask}, {left}, {right}"]
            lines += [f"v_cndmask_b32 v{first}, 0, 1, {mask}", f"{move} {mask}, {active}"]
            lines += [f"v_cmpx_{name}_e32 {'vcc, ' if old else ''}{left}, {right}", f"v_mov_b32 v{second}, 1"]
            lines += [f"{move} {active}, {mask}"]
        for round_ in range(rounds):
            given = {2 + k: make_words(kind, LANES[gpu], 10 * round_ + k) for k in range(4)}
            given[4][::5], given[5][::5] = given[2][::5], given[3][::5]
            given[5][1::7] = given[3][1::7]
            made = run_both(gpu, lines, given, range(20, 20 + 2 * len(names)), directives=DENORMALS)
            pairs = list(zip(join(given[2], given[3]), join(given[4], given[5]), strict=True))
            for number, name in enumerate(names):
                bits, expect = oracles.COMPARE[name]
                for lane, (a, b) in enumerate(pairs):
                    want = int(expect(a % (1 << bits), b % (1 << bits)))
                    found = [int(each[lane]) for each in made[2 * number : 2 * number + 2]]
                    assert found == [want, want], (name, hex(a), hex(b))


def count_steps(found: int, exact: float) -> int:
    """How many numbers of f32 are between a result and the nearest f32 of the exact one."""
    value = oracles.to_float(found)
    if math.isnan(exact) or math.isnan(value) or math.isinf(exact) or math.isinf(value):
        return 0 if math.isnan(value) == math.isnan(exact) and (math.isnan(exact) or value == exact) else 2**31
    keys = [find_key(oracles.to_bits(each)) for each in (value, float(np.float32(exact)))]
    return abs(keys[0] - keys[1])


def find_key(bits: int) -> int:
    """Consecutive integers for consecutive numbers."""
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


@each_gpu
@each_length
def test_functions_that_may_be_one_step_apart(gpu: str, rounds: int) -> None:
    lanes = LANES[gpu]
    scalar = oracles.CLOSE_SCALAR if gpu == "gfx1201" else {}
    for name, function in {**oracles.CLOSE, **scalar}.items():
        lines = [f"{name} v10, v2"]
        if name in scalar:
            lines = ["v_mov_b32 v10, 0"]
            lines += [
                line
                for lane in range(SCALAR_LANES)
                for line in (f"v_readlane_b32 s20, v2, {lane}", f"{name} s24, s20", f"v_writelane_b32 v10, s24, {lane}")
            ]
        for round_ in range(rounds):
            values = edge_values(np.dtype(np.float32), lanes, round_)
            values[np.abs(values) < 2.0**-100] = 0.75  # subnormal inputs are zero here, subnormal results, too
            values[np.abs(values) > 2.0**100] = np.inf
            values[7] = 0
            (made,) = run_both(gpu, lines, {2: values.view(np.uint32)}, [10], directives=DENORMALS)
            for value, found in list(zip(values, made, strict=True))[: SCALAR_LANES if name in scalar else None]:
                assert count_steps(int(found), function(float(value))) <= 1, (name, value, hex(found))


@pytest.mark.parametrize("gpu", ("gfx1100", "gfx1201"))
@pytest.mark.parametrize("active", [0, 1, 0x0F0F1234, 0xFFFFFFFF])
def test_a_mask_is_changed_and_kept(gpu: str, active: int) -> None:
    """s_xor_saveexec_b32: the result is the old mask, the carry says whether the new one is not 0."""
    other = 0x00FF1234
    lines = [f"s_mov_b32 s20, {other:#x}", f"s_mov_b32 exec_lo, {active:#x}", "s_xor_saveexec_b32 s24, s20"]
    lines += ["s_cselect_b32 s25, 1, 0", "s_mov_b32 s26, exec_lo", "s_mov_b32 exec_lo, -1"]
    lines += [f"v_mov_b32 v{10 + k}, s{24 + k}" for k in range(3)]
    made = [int(each[0]) for each in run_both(gpu, lines, {}, [10, 11, 12])]
    assert made == [active, int(active != other), active ^ other]
