"""What the documents tell a reader to type after `make` exists, and CI runs nothing that a developer cannot."""

from __future__ import annotations

import re

from fences import PAGES, ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def test_every_target_that_a_document_names_exists() -> None:
    named = {
        (page.name, target)
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z][a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) > 10
    assert [(page, target) for page, target in sorted(named) if target not in TARGETS] == []


def test_every_target_is_phony_and_listed() -> None:
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE) for name in line.split()}
    told = set(re.findall(r"^([a-z][a-z-]*):.*##", MAKEFILE, re.MULTILINE))
    assert TARGETS == phony == told


def test_ci_runs_targets_alone() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line.strip()]
    commands = [line for line in lines if not line.startswith(("#", "set ", "cd ", "export "))]
    assert commands
    assert [line for line in commands if not re.fullmatch(r"make( --jobs=2)?( [a-z-]+)+", line)] == []
    assert {word for line in commands for word in line.split()[1:] if not word.startswith("--")} <= TARGETS
