"""`verify` notices mutated kernels with the op's own trials: changed instructions, removed barriers and waits.

`make mutations` runs many more, and writes docs/mutations.md.
"""

from __future__ import annotations

import random

import pytest

from built_kernels import built, tiered
from ck_trees import ABSENT, TREES
from tests.proof import mutations
from tests.proof.mutating.changes import NOP, WAIT, Mutation, draw_mutations, remove_synchronization
from tests.proof.mutating.judge import MISSED, NOTICED, SAME, WITHIN, Judge
from tests.proof.mutating.kernels import get_tree, make_gemm, make_kernels, use_tree_of
from tests.proof.mutating.problems import draw_larger_problems
from tests.proof.mutating.reasons import HARMLESS
from tests.proof.mutating.report import GOAL
from tilewright.emulator.launch import Mode
from tilewright.ops import fits

pytestmark = pytest.mark.compile

GEMM, CONV, SORTING = "gemm/standard", "grouped_conv/backward_weight", "moe_sorting/plain"


def is_absent(name: str) -> bool:
    """Whether the CK tree that a kernel needs is not there."""
    return bool(get_tree(name)) and not (TREES / get_tree(name)).is_dir()


EVERY = [
    pytest.param(name, marks=pytest.mark.skipif(is_absent(name), reason=ABSENT), id=name) for name in make_kernels()
]


@pytest.fixture(scope="module")
def judges() -> dict[str, Judge]:
    kernels = {name: make_kernels()[name] for name in (GEMM, CONV, SORTING)}
    return {
        name: Judge(kernels[name], artifact) for name, artifact in zip(kernels, built(kernels.values()), strict=True)
    }


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", [GEMM, CONV, SORTING])
def test_changed_instructions_are_noticed_by_the_trials(judges: dict[str, Judge], name: str, count: int) -> None:
    """With so few mutations, none that matters may be missed."""
    judge = judges[name]
    changes = draw_mutations(judge.lines, count, 20261, judge.is_supported)
    found = {str(change): judge.judge(change) for change in changes}
    assert len(found) == count
    assert [f"{change}: {outcome.how}" for change, outcome in found.items() if outcome.verdict == MISSED] == []
    assert sum(outcome.verdict == NOTICED for outcome in found.values()) >= count // 2


def test_every_instruction_that_larger_problems_execute_is_in_a_trial(judges: dict[str, Judge]) -> None:
    assert {name: [str(line) for line in judge.unreached_lines] for name, judge in judges.items()} == {
        name: [] for name in judges
    }


def test_a_division_of_the_map_from_work_groups_to_tiles(judges: dict[str, Judge]) -> None:
    """Right for one or two tiles whatever becomes of it: trials of four work-groups passed every such kernel."""
    judge = judges[GEMM]
    divisions = [line for line in judge.lines if line.text.startswith("v_rcp_iflag_f32")]
    assert len(divisions) >= 3
    verdicts = {judge.judge(Mutation(line, "s_nop 0")).verdict for line in divisions}
    assert verdicts <= {NOTICED, SAME} and NOTICED in verdicts
    few = Judge(judge.kernel, judge.artifact, trials=[t.problem for t in judge.trials if _work_groups(t.problem) <= 4])
    assert any(few.judge(Mutation(line, "s_nop 0")).verdict == MISSED for line in divisions)


def _work_groups(problem: object) -> int:
    return -(-problem.m // 64) * -(-problem.n // 64)  # type: ignore[attr-defined]


def test_unrolled_loops_over_the_table_of_a_sorting(judges: dict[str, Judge]) -> None:
    """Seven trials had no table that ends in the middle of an unrolled loop, and passed some of these changes."""
    judge = judges[SORTING]
    changes = [
        Mutation(line, NOP) for line in judge.lines if line.text.startswith(("v_mov_b64_e32", "v_cmp_ge_i32_e32"))
    ]
    assert len(changes) >= 5
    assert [str(change) for change in changes if judge.judge(change).verdict == MISSED] == []
    few = Judge(judge.kernel, judge.artifact, trials=[trial.problem for trial in judge.trials[:7]])
    assert any(few.judge(change).verdict == MISSED for change in changes)


@pytest.mark.parametrize("name", EVERY)
def test_larger_problems_fit_and_are_the_same_every_time(name: str) -> None:
    kernel = make_kernels()[name]
    with use_tree_of(name):
        found = draw_larger_problems(kernel, 6)
        assert len(found) == 6 and found == draw_larger_problems(kernel, 6)
        assert all(not fits(kernel.config, problem, kernel.arch) for problem in found)


def test_outcomes_are_taken_from_the_log(tmp_path: object) -> None:
    path = tmp_path / "log.jsonl"  # type: ignore[operator]
    log = mutations.Log(path)
    first = log.get_or_judge("basis", "a → b", lambda: mutations.Outcome(NOTICED, "trial", 2, 5))
    with path.open("a") as file:
        file.write('{"basis": "basis", "cha')  # cut off
    again = mutations.Log(path)
    assert again.get_or_judge("basis", "a → b", pytest.fail) == first  # type: ignore[arg-type]
    other = mutations.Outcome(SAME)
    assert again.get_or_judge("other basis", "a → b", lambda: other) == other


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpu", [*tiered(["gfx942"], lambda gpu: [make_gemm(gpu)]), pytest.param("gfx1201", marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("at_most", [6, pytest.param(1000, marks=pytest.mark.deep)])
def test_every_barrier_and_wait_that_is_needed_is_missed_in_strict_mode(
    judges: dict[str, Judge], gpu: str, at_most: int
) -> None:
    kernel = make_gemm(gpu)
    judge = judges[GEMM] if judges[GEMM].kernel == kernel else Judge(kernel, *built([kernel]))
    every = remove_synchronization(judge.lines)
    assert len(every) > 10
    taken = random.Random(1).sample(every, min(at_most, len(every)))
    outcomes = {str(change): judge.judge_removal(change) for change in taken}
    assert len(outcomes) == len(taken)
    assert [name for name, found in outcomes.items() if found.verdict in (SAME, WITHIN, MISSED)] == []
    noticed = [change for change in taken if outcomes[str(change)].verdict not in HARMLESS]
    assert len(noticed) > len(outcomes) / 2
    # What makes strict mode worth its time: the other notices missing barriers by chance, and missing waits never.
    waits = random.Random(1).sample(
        [change for change in noticed if WAIT.match(change.line.text)], min(4, at_most // 3)
    )
    fast = {judge.judge(change, Mode.FAST, only=outcomes[str(change)].trial).verdict for change in waits}
    assert fast == {SAME}


@pytest.mark.deep
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", EVERY)
def test_every_kind_of_kernel(name: str) -> None:
    """The table of docs/mutations.md."""
    kernel = make_kernels()[name]
    with use_tree_of(name):
        (artifact,) = built([kernel])
        found = mutations.mutate(name, kernel, artifact, mutations.COUNT, 1, mutations.Log(mutations.LOG))
    assert found.score >= GOAL and found.unexplained == 0, found.format_section(mutations.get_today())
