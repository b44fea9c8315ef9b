"""A wrong kernel is noticed: single instructions changed, barriers and waits taken away. `make mutations` does more."""

from __future__ import annotations

import pytest

import mutations
import tilewright as tw
from built_kernels import built
from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module", params=[("gfx942", "native"), ("gfx1201", "native")], ids="-".join)
def subject(request: pytest.FixtureRequest) -> mutations.Subject:
    gpu, engine = request.param
    kernel = tw.kernel_of(tw.gemm.config(**mutations.CONFIG), gpu)
    (artifact,) = built([kernel])
    return mutations.launched(kernel, artifact).on(engine)


def test_most_random_changes_are_noticed(subject: mutations.Subject) -> None:
    """The others matter only for sizes and signs that the problem does not have, or do not matter at all."""
    changes = mutations.random_mutations(subject.kernel.program.reached, 50, seed=2)
    outcomes = [subject.outcome(subject.mutated(change), Mode.STRICT) for change in changes]
    assert outcomes.count("same") <= 20


def test_every_barrier_and_wait_that_is_needed_is_missed_in_strict_mode(subject: mutations.Subject) -> None:
    taken = mutations.synchronisation(subject.kernel.program.reached)
    outcomes = {str(change): subject.both(change) for change in taken}
    assert len(outcomes) > 20
    assert [name for name, (_, strict) in outcomes.items() if strict == "same"] == []
    noticed = [name for name, (_, strict) in outcomes.items() if strict not in mutations.HARMLESS]
    assert len(noticed) > len(outcomes) / 2
    # What makes strict mode worth its time: the other notices missing barriers by chance, and missing waits never.
    waits = [change for change in taken if mutations.WAIT.match(change.line.text)]
    assert {outcomes[str(change)][0] for change in waits} == {"same"}
