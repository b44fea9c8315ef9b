"""Judge the comparison of the device with the emulated device: which kernels agree, and the suspects if some do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.acceptance.instruction_classes import adds_in_any_order
from tilewright.acceptance.suspects import Suspect, find_exclusive, find_symptom, rank_suspects

# Verdicts of a run, the worst first. A kernel has the worst verdict of its runs.
FAULT, DISAGREES, TWIN_FAULT, UNSUPPORTED, ORDER, AGREES = (
    *("fault", "disagrees", "emulator fault", "unsupported", "order", "agrees"),
)
VERDICTS = (FAULT, DISAGREES, TWIN_FAULT, UNSUPPORTED, ORDER, AGREES)
# Verdicts that fail the stage.
BAD = (FAULT, DISAGREES, TWIN_FAULT, UNSUPPORTED)
MEANINGS: Mapping[str, str] = {
    FAULT: "The device stopped the kernel, or the process that used it ended.",
    DISAGREES: "Bits differ from those of the emulated device.",
    TWIN_FAULT: "The emulated device cannot run the kernel, so nothing was compared.",
    UNSUPPORTED: "The kernel's library rejects the problem.",
    ORDER: "Bits differ within the tolerance, and the kernel adds with atomics, in an order that a GPU chooses anew.",
    AGREES: "All bits are equal.",
}

# Verdict → its words after the number of kernels, for one kernel and for several.
_PREDICATES: Mapping[str, tuple[str, str]] = {
    ORDER: ("differs only by the order of atomic additions", "differ only by the order of atomic additions"),
    DISAGREES: ("disagrees", "disagree"),
    FAULT: ("failed on the device", "failed on the device"),
    TWIN_FAULT: ("cannot be emulated", "cannot be emulated"),
    UNSUPPORTED: ("rejects its problem", "reject their problems"),
}


@dataclass(frozen=True)
class KernelAgreement:
    """The verdict of a kernel over all its runs, and the runs."""

    kernel: str
    verdict: str
    rows: tuple[Mapping[str, Any], ...]

    @property
    def messages(self) -> list[str]:
        """The messages of the runs with this verdict."""
        return [str(row["message"]) for row in self.rows if row["verdict"] == self.verdict and row.get("message")]


@dataclass(frozen=True)
class Judgement:
    """All kernels with their verdicts, and the suspects for all disagreements together and for each kernel."""

    kernels: tuple[KernelAgreement, ...]
    symptom: str | None
    suspects: tuple[Suspect, ...]
    exclusive: Mapping[str, Mapping[str, Sequence[str]]]  # kernel → class → mnemonics that no agreeing kernel uses

    def list_names(self, *verdicts: str) -> list[str]:
        """The kernels with one of these verdicts."""
        return [each.kernel for each in self.kernels if each.verdict in verdicts]

    @property
    def ok(self) -> bool:
        return not self.list_names(*BAD)

    def describe(self) -> str:
        """One sentence about all kernels."""
        counts = {verdict: len(self.list_names(verdict)) for verdict in VERDICTS}
        parts = [f"{counts[AGREES]} of {len(self.kernels)} kernels agree bit by bit"]
        parts += [
            f"{counts[verdict]} {one if counts[verdict] == 1 else several}"
            for verdict, (one, several) in _PREDICATES.items()
            if counts[verdict]
        ]
        said = ", ".join(parts)
        if self.suspects:
            return f"{said}. First suspects: {'; '.join(str(each) for each in self.suspects[:3])}"
        return said


def group_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each kernel, in their order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row["kernel"]), []).append(dict(row))
    return found


def needs_disassembly(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether suspects are to be found: a run differs, failed, or is not repeatable."""
    return any(row["verdict"] in (FAULT, DISAGREES) or row.get("repeatable") is False for row in rows)


def judge(rows: Sequence[Mapping[str, Any]], uses: Mapping[str, Collection[str]]) -> Judgement:
    """Judge all runs. `uses` has the mnemonics of each kernel; it may be empty if all agree."""
    kernels = []
    for name, own in group_rows(rows).items():
        unordered = adds_in_any_order(uses.get(name, ()))
        judged = tuple({**row, "verdict": _judge_row(row, unordered)} for row in own)
        worst = min((str(row["verdict"]) for row in judged), key=VERDICTS.index)
        kernels.append(KernelAgreement(name, worst, judged))
    bad = [each.kernel for each in kernels if each.verdict in (FAULT, DISAGREES)]
    good = [each.kernel for each in kernels if each.verdict in (AGREES, ORDER)]
    symptom = find_symptom(_list_sizes(kernels))
    suspects = rank_suspects(uses, bad, good, symptom)
    return Judgement(tuple(kernels), symptom, suspects, {name: find_exclusive(uses, name, good) for name in bad})


def _judge_row(row: Mapping[str, Any], unordered: bool) -> str:
    """The verdict of a run. Sums of atomics may differ by their order, within the tolerance of the op.

    A kernel may have atomics that a problem does not reach, so those that the emulated device counted decide.
    """
    verdict = str(row["verdict"])
    unordered = unordered and row.get("atomics", 0) > 0
    right = row.get("device_right") is True and row.get("emulated_right") is True
    if unordered and verdict in (AGREES, DISAGREES) and right and not row.get("strays"):
        return AGREES if verdict == AGREES and row.get("repeatable") is not False else ORDER
    return DISAGREES if verdict == AGREES and row.get("repeatable") is False else verdict


def _list_sizes(kernels: Iterable[KernelAgreement]) -> list[float | None]:
    """The largest difference of each output that differs, in ulps; None if there is none, as for a NaN."""
    return [
        None if difference["nans"] or difference["untouched"] else difference["max_ulps"]
        for each in kernels
        for row in each.rows
        if row["verdict"] == DISAGREES
        for difference in row.get("differences", ())
    ]
