"""The words that switch checks on."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import choose

UNINITIALIZED, RACES, BARRIERS, PROGRESS, LEAKS = "uninitialized", "races", "barriers", "progress", "leaks"
CHECKS = {
    UNINITIALIZED: "reads of memory and LDS that nobody wrote",
    RACES: "accesses of two waves that nothing orders, in LDS and memory",
    BARRIERS: "barriers that not all waves or lanes of a work-group reach",
    PROGRESS: "loops that wait for a change that no wave makes",
    LEAKS: "memory that is not freed when the program ends",
}
# A launch makes these; leaks are found when a program ends.
LAUNCH_CHECKS = (UNINITIALIZED, RACES, BARRIERS, PROGRESS)
ALL = "all"
# Launch.checks in shadow.h
BITS = {UNINITIALIZED: 1, RACES: 2, BARRIERS: 4, PROGRESS: 8}


def parse_checks(text: str | Iterable[str], known: Iterable[str] = LAUNCH_CHECKS) -> frozenset[str]:
    """Return the checks of a text such as "races,barriers", or of several words; "all" means all that are known."""
    known = tuple(known)
    given = text.split(",") if isinstance(text, str) else text
    words = {word for part in given for word in part.replace(",", " ").split()}
    for word in sorted(words):
        choose("check", word, (*known, ALL))
    return frozenset(known) if ALL in words else frozenset(words)


def make_bits(checks: frozenset[str]) -> int:
    """Return the checks that a launch makes, as the engine wants them."""
    return sum(bit for word, bit in BITS.items() if word in checks)
