"""Plans of C++ programs against those of Python: kernels, stages, memory, and the arguments of every launch.

The library has priorities and a tuned table, as the registry in Python.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from c_problems import GPU, OPS, SEED, StandIns, count_workspace_bytes, random_problems, to_c, whole_fields
from tilewright import arch as archs
from tilewright.dispatch.launch import find_intermediates
from tilewright.dispatch.select_stages import select_stages
from tilewright.ops import find_op
from tilewright.select.chain import Chain
from tilewright.select.select import CandidatePool, select_from
from tilewright.select.selection import Selection
from tilewright.select.tuned import TunedEntry, TunedTable

pytestmark = pytest.mark.compile
PROGRAM = Path(__file__).with_name("plans.cpp")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-g", "-fsanitize=address,undefined")
OTHERS = 50  # at most
MEMORY = 0x10000000


@pytest.fixture(scope="module")
def program(stand_ins: StandIns) -> Path:
    made = stand_ins.folder / "plans"
    words = ("g++", *STRICT, f"-I{stand_ins.folder}/include", str(PROGRAM), "-o", str(made), "-ldl")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return made


@pytest.fixture(scope="module")
def pool(stand_ins: StandIns) -> CandidatePool:
    return CandidatePool.create(archs.load(GPU), stand_ins.kernels, stand_ins.order.priorities)


@pytest.fixture(scope="module")
def chain(stand_ins: StandIns) -> Chain:
    entries = [TunedEntry(each.kernel, each.problem, each.us) for each in stand_ins.order.tuned]
    return Chain(tuned=TunedTable(entries), bundles=())


def select(pool: CandidatePool, chain: Chain, problem: Any) -> Selection:
    op = next(op for op in map(find_op, OPS) if op.problem_type is type(problem))
    assert op.execution is not None
    select_one = functools.partial(select_from, pool, selector=chain)
    return select_stages(problem, op.execution, select_one)


def draw_selections(op: str, stand_ins: StandIns, pool: CandidatePool, chain: Chain, count: int) -> list[Selection]:
    """Selections for problems, `count` of which have a plan, as nearly all have."""
    found: list[Selection] = []
    planned = others = 0
    for problem in random_problems(op, stand_ins.kernels, 20 * count, SEED):
        selection = select(pool, chain, problem)
        if selection.choices or others < OTHERS:
            found.append(selection)
            planned += bool(selection.choices)
            others += not selection.choices
        if planned == count:
            return found
    raise AssertionError(f"only {planned} problems have plans")


def round_up(size: int) -> int:
    return -(-size // 256) * 256


def run(program: Path, stand_ins: StandIns, op: str, problems: Sequence[Any], folder: Path) -> tuple[list[str], str]:
    file, launches = folder / "problems", folder / "launches"
    file.write_bytes(b"".join(bytes(to_c(op, whole_fields(problem))) for problem in problems))
    words = ("env", "ASAN_OPTIONS=detect_leaks=0", program, stand_ins.file, op, file, launches)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), launches.read_text()


def workspace_of(stand_ins: StandIns, kernel: Any) -> int:
    return count_workspace_bytes(stand_ins.kernels, stand_ins.kernels.index(kernel))


@pytest.mark.parametrize("planned_count", [300, pytest.param(500, marks=pytest.mark.deep)])
@pytest.mark.parametrize("op", OPS)
def test_plans_have_the_kernels_stages_and_launches_of_python(
    op: str, planned_count: int, stand_ins: StandIns, program: Path, pool: CandidatePool, chain: Chain, tmp_path: Path
) -> None:
    selections = draw_selections(op, stand_ins, pool, chain, planned_count)
    problems = [selection.problem for selection in selections]
    lines, launches = run(program, stand_ins, op, problems, tmp_path)
    execution, arch = find_op(op).execution, pool.arch
    assert execution is not None
    planned: list[int] = []
    wanted_launches = []
    for problem, selection, line in zip(problems, selections, lines, strict=True):
        if not selection.choices:
            assert line.startswith("none: no kernel of "), (line, problem)
            continue
        chosen = [part.best.kernel for part in selection.stages]
        tensors = [execution.tensors(part.problem) for part in selection.stages]
        whole = execution.tensors(problem)
        between = find_intermediates(whole, tensors, arch)
        workspaces = [workspace_of(stand_ins, kernel) for kernel in chosen]
        memory = sum(round_up(each.nbytes) for each in between) + sum(map(round_up, workspaces))
        kernels = "".join(f"{kernel.slug} " for kernel in chosen)
        sizes = "".join(f" {each.tensor.name}={each.nbytes}" for each in between)
        assert line == f"{kernels}|{sizes} | {memory}", problem
        planned.append(len(chosen))
        # What each launch gets: addresses of tensors by name, then memory in the order of use.
        addresses = {tensor.name: 0x1000 * (place + 1) for place, tensor in enumerate(whole)}
        at = MEMORY
        for each in between:
            addresses[each.tensor.name] = at
            at += round_up(each.nbytes)
        for part, kernel, own, workspace in zip(selection.stages, chosen, tensors, workspaces, strict=True):
            args = execution.arguments(part.problem)
            if workspace:
                args.workspace, args.workspace_size = at, workspace
            execution.point(part.problem)(args, [addresses[tensor.name] for tensor in own])
            words = memoryview(args).cast("B").cast("Q")
            wanted_launches.append(f"{stand_ins.kernels.index(kernel)} " + " ".join(f"{word:x}" for word in words))
            at += round_up(workspace)
        wanted_launches.append("end")
    assert launches.splitlines() == wanted_launches
    assert len(planned) == planned_count
    measured = [part for each in selections if each.choices for part in each.stages if "measured" in part.best.why]
    assert len(measured) > 10
    if op == "fmha":
        assert min(planned.count(2), planned.count(3)) > 10, f"{planned.count(2)}, {planned.count(3)} of several stages"


def test_the_front_end_does_what_it_says(stand_ins: StandIns, program: Path) -> None:
    words = ("env", "ASAN_OPTIONS=detect_leaks=0", str(program), str(stand_ins.file), "api")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)

    assert listed["count"] == len(listed["kernels"]) == len(stand_ins.kernels)
    assert sum(listed["counts"]["op"].values()) == listed["count"] == listed["counts"]["gpu"][GPU]
    assert {row["slug"]: row["config"] for row in listed["kernels"]} == {
        kernel.slug: json.loads(json.dumps(kernel.facts["config"])) for kernel in stand_ins.kernels
    }
    wanted = Counter(kernel.config.dtype_a for kernel in stand_ins.kernels if kernel.op == "gemm")
    assert listed["counts"]["gemm.dtype_a"] == wanted
