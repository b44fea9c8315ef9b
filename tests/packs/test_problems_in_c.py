"""Problems in C against Python: completed fields, arguments, tensors, stages, fit rules and choices."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from c_problems import GPU, OPS, CReason, CTensor, StandIns, c_type_of, random_problems, struct_of, to_c, whole_fields
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op
from tilewright.ops.problem_field import get_op_name
from tilewright.ops.rule import find_violations

pytestmark = pytest.mark.compile
PAIRS = 5_000
PROBLEMS = 1_000


def bytes_of(struct: Any) -> bytes:
    return bytes(memoryview(struct).cast("B"))


def vary(problem: Any, random: np.random.Generator) -> Any:
    """The problem with one field of another value, where that is possible."""
    members = list(struct_of(get_op_name(type(problem))).members.values())
    member = members[random.integers(len(members))]
    least, most = member.bounds
    value: Any = int(2 ** random.uniform(0, 33)) if most - least > 64 else int(random.integers(least, most + 1))
    if member.names:
        value = member.names[random.integers(len(member.names))]
    elif member.is_flag:
        value = bool(random.integers(2))
    elif member.is_extents:
        value = tuple(int(random.integers(1, 30)) for _ in getattr(problem, member.name))
    elif member.c_type == "double":
        value = float(random.choice([0.0, 0.25, 0.5]))
    try:
        return dataclasses.replace(problem, **{member.name: value})
    except InvalidValueError:
        return problem


def various_problems(op: str, stand_ins: StandIns, seed: int) -> Iterator[Any]:
    """Problems of kernels, half of them with some other fields."""
    random = np.random.default_rng(seed)
    for problem in random_problems(op, stand_ins.kernels, PROBLEMS, seed):
        changed = problem
        for _ in range(random.choice([0, 0, 1, 3, 6])):
            changed = vary(changed, random)
        yield changed


@pytest.mark.parametrize("op", OPS)
def test_completed_problems_are_those_of_python(op: str, stand_ins: StandIns) -> None:
    random = np.random.default_rng(1)
    derived = [name for name, m in struct_of(op).members.items() if m.field.stands_for and m.field.stands_for.compute]
    for problem in random_problems(op, stand_ins.kernels, PROBLEMS, seed=1):
        fields = whole_fields(problem)
        given = {name: value for name, value in fields.items() if name not in derived or random.random() < 0.5}
        for name, value in given.items():
            if isinstance(value, tuple) and len(set(value)) == 1 and name != "input_size" and random.random() < 0.5:
                given[name] = value[:1]
        found, message = stand_ins.complete(op, given)
        try:
            wanted = find_op(op).problem_type(**given)
        except InvalidValueError as error:
            assert message == str(error)
            continue
        assert message == ""
        assert bytes_of(found) == bytes_of(to_c(op, whole_fields(wanted))), problem


# Lists of tensors that the problems of an op have, at least. A product with scales has those of A, or not.
FORMS = {"gemm_quant": 2, "grouped_gemm": 2, "topk": 1, "moe_sorting": 2}
INVALID = {
    "gemm": [{"m": 0}, {"stride_a": 3}, {"num_row_d": 1}, {"num_d": 9}, {"stride_c": 1}],
    "gemm_quant": [{"m": 0}, {"stride_a": 3}, {"stride_b": 3}, {"stride_c": 1}, {"k": 0}],
    "grouped_gemm": [{"m": 0}, {"groups": 0}, {"stride_a": 3}, {"stride_b": 3}, {"stride_c": 1}],
    "grouped_conv": [{"g": 3}, {"left_pad": (-1, 0)}, {"stride": (0, 1)}, {"c": 5, "g": 2}, {"filter_size": (40, 1)}],
    "fmha": [{"kv_heads": 3}, {"window_left": 4}, {"total_q": 4}, {"mode": "group", "total_q": 1}, {"seqlen_q": 0}],
    "moe_sorting": [{"tokens": 0}, {"experts": 0}, {"k": 0}, {"k": 5000}, {"unit": 0}],
    "topk": [{"rows": 0}, {"experts": 0}, {"k": 0}, {"k": 5000}, {"stride_x": 3}],
    "norm": [{"rows": 0}, {"stride_y": 3}, {"kind": "smoothquant"}, {"dtype_y": "int8"}, {"quant": "dynamic"}],
}


@pytest.mark.parametrize(("op", "changes"), [(op, changes) for op in OPS for changes in INVALID[op]])
def test_invalid_problems_are_rejected_with_the_words_of_python(
    op: str, changes: dict[str, Any], stand_ins: StandIns
) -> None:
    known = find_op(op)
    example = whole_fields(known.problem_type(**known.example_problem))
    with pytest.raises(InvalidValueError) as said:
        known.problem_type(**{**example, **changes})
    _, message = stand_ins.complete(op, {**example, **changes})

    assert message == str(said.value)


@pytest.mark.parametrize("seqlen_k", [0, 64, 128])
def test_a_name_that_stands_for_another_is_resolved_as_in_python(seqlen_k: int, stand_ins: StandIns) -> None:
    known = find_op("fmha")
    given = {**known.example_problem, "family": "forward", "mode": "batch", "seqlen_q": 64, "seqlen_k": seqlen_k}
    args = to_c("fmha", {**given, "mask": "none"})
    args.mask = struct_of("fmha").members["mask"].accepted_names.index("causal") + 1
    found, message = stand_ins.complete_struct("fmha", args)
    try:
        wanted = known.problem_type(**given, mask="causal")
    except InvalidValueError as error:
        assert message == str(error)
    else:
        assert message == "" and bytes_of(found) == bytes_of(to_c("fmha", whole_fields(wanted)))


def test_a_missing_name_is_an_error_with_the_known_ones(stand_ins: StandIns) -> None:
    _, message = stand_ins.complete("gemm", {"m": 1, "n": 1, "k": 1, **dict.fromkeys(("dtype_a", "dtype_b"), "fp16")})

    assert message.startswith("the problem has no dtype_c, or one that does not exist. Known: fp64, fp32, fp16")


@pytest.mark.parametrize("op", OPS)
def test_arguments_have_the_bytes_of_python(op: str, stand_ins: StandIns) -> None:
    execution = find_op(op).execution
    assert execution is not None
    for problem in various_problems(op, stand_ins, seed=2):
        wanted = execution.arguments(problem)
        found = type(wanted)()
        args = to_c(op, whole_fields(problem))
        assert stand_ins.call(op, "arguments", ctypes.byref(args), ctypes.byref(found)) == 0
        assert bytes_of(found) == bytes_of(wanted), problem


@pytest.mark.parametrize("op", OPS)
def test_tensors_are_those_of_python(op: str, stand_ins: StandIns) -> None:
    execution = find_op(op).execution
    assert execution is not None
    assert execution.call is not None
    seen = set()
    for problem in various_problems(op, stand_ins, seed=3):
        wanted = [
            (t.name, t.dtype, t.shape, t.strides, t.output, t.updated, execution.call.get_offset(place))
            for t, place in zip(execution.tensors(problem), execution.call.places(problem), strict=True)
        ]
        found, count = (CTensor * 64)(), ctypes.c_uint64()
        struct = to_c(op, whole_fields(problem))
        assert stand_ins.call(op, "tensors", ctypes.byref(struct), found, ctypes.byref(count)) == 0
        made = [
            (
                *(t.name.decode(), t.dtype.decode(), tuple(t.shape[: t.rank]), tuple(t.strides[: t.rank])),
                *(bool(t.output), bool(t.updated), t.offset),
            )
            for t in found[: count.value]
        ]
        assert made == wanted, problem
        seen.add(tuple(name for name, *_ in made))
    assert len(seen) >= FORMS.get(op, 3)


@pytest.mark.parametrize("op", OPS)
def test_stages_are_those_of_python(op: str, stand_ins: StandIns) -> None:
    execution = find_op(op).execution
    assert execution is not None
    counts = set()
    for problem in various_problems(op, stand_ins, seed=4):
        number, struct = 0, to_c(op, whole_fields(problem))
        while True:
            wanted = execution.next_stage(problem, (None,) * number)
            found, more = c_type_of(op)(), ctypes.c_int()
            place = ctypes.c_uint64(number)
            assert (
                stand_ins.call(op, "stage", ctypes.byref(struct), place, ctypes.byref(found), ctypes.byref(more)) == 0
            )
            assert bool(more.value) == (wanted is not None)
            if wanted is None:
                break
            assert bytes_of(found) == bytes_of(to_c(op, whole_fields(wanted))), (problem, number)
            number += 1
        counts.add(number)
    assert counts == ({1, 2, 3} if op == "fmha" else {1})


def ask(stand_ins: StandIns, op: str, number: int, struct: Any) -> tuple[str, str, str, str, str] | None:
    reason = CReason()
    status = stand_ins.call(op, "why_not", ctypes.byref(struct), ctypes.c_uint64(number), ctypes.byref(reason))
    assert status in (0, 2)
    if status == 0:
        return None
    texts = (reason.code, reason.rule, reason.message, reason.field, reason.advice)
    return tuple(text.decode() for text in texts)  # type: ignore[return-value]


@pytest.mark.parametrize("op", OPS)
def test_why_not_is_the_first_violation_of_python(op: str, stand_ins: StandIns) -> None:
    """Code, name, message with all numbers, field and advice, on pairs of kernels and problems."""
    arch, known, random = archs.load(GPU), find_op(op), np.random.default_rng(5)
    own = stand_ins.own(op)
    problems = list(random_problems(op, stand_ins.kernels, PAIRS // 5, seed=5))
    seen: dict[str, int] = {}
    for pair in range(PAIRS):
        problem = problems[pair % len(problems)]
        for _ in range(random.integers(3)):
            problem = vary(problem, random)
        able = [n for n in own if not known.fit_rules[0].check(stand_ins.kernels[n].config, problem, arch)]
        number = int(random.choice(able if able and random.random() < 0.9 else own))
        faults = find_violations(known.fit_rules, stand_ins.kernels[number].config, problem, arch)
        wanted = (faults[0].code, faults[0].slug, faults[0].message, faults[0].field, faults[0].fix) if faults else None
        found = ask(stand_ins, op, number, to_c(op, whole_fields(problem)))
        assert found == wanted, (stand_ins.kernels[number].slug, problem)
        seen[wanted[0] if wanted else "fits"] = seen.get(wanted[0] if wanted else "fits", 0) + 1
    assert seen["fits"] > PAIRS // 40, seen
    assert len(seen) > min(5, len(known.fit_rules)), seen
