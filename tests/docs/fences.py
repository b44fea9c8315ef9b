"""The fenced blocks of Markdown files, and how what a block prints is compared with what the file shows.

A comment on the line before a block says how it is run: `<!-- not run -->`, `<!-- needs: compiler -->`,
`<!-- exit: 1 -->`, or that it is a file of the reader's, `<!-- file: main.cpp -->`. A block of text that follows a run
block is what it must print; there a line `…` stands for any lines, and times may differ.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"```(?P<language>\w*)")
_MARK = re.compile(r"<!-- (?P<mark>[^>]+?) -->")
_TIME = re.compile(r"\b\d+(\.\d+)? (s|ms)\b")
_HEADING = re.compile(r"#+ (?P<title>.+)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, where it begins, and the marks before it."""

    language: str
    text: str
    line: int
    marks: tuple[str, ...]
    section: str
    shown: str = ""  # the text block that follows it

    @property
    def run(self) -> bool:
        return "not run" not in self.marks

    @property
    def compiles(self) -> bool:
        return "needs: compiler" in self.marks

    @property
    def file(self) -> str:
        return next((mark.removeprefix("file: ") for mark in self.marks if mark.startswith("file: ")), "")

    @property
    def exit_code(self) -> int:
        return next((int(mark.removeprefix("exit: ")) for mark in self.marks if mark.startswith("exit: ")), 0)


def blocks(path: Path) -> list[Block]:
    """The blocks of a file in order; a block of text belongs to the runnable block right before it."""
    found: list[Block] = []
    marks: list[str] = []
    section = ""
    inside: list[str] | None = None
    language, start, after_block = "", 0, False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.fullmatch(line)
        if inside is not None:
            if line == "```":
                block = Block(language, "\n".join(inside) + "\n", start, tuple(marks), section)
                if language == "text" and after_block and not marks:
                    found[-1] = replace(found[-1], shown=block.text)
                else:
                    found.append(block)
                inside, marks, after_block = None, [], language in ("python", "bash")
            else:
                inside.append(line)
        elif fence:
            inside, language, start = [], fence["language"], number
        elif mark := _MARK.fullmatch(line):
            marks.append(mark["mark"])
            after_block = False
        elif line.strip():
            marks, after_block = [], False
            if heading := _HEADING.fullmatch(line):
                section = heading["title"]
    assert inside is None, f"{path}:{start}: a block without an end"
    return found


def run_python(path: Path, block: Block, names: dict[str, Any]) -> str:
    """What a block of Python prints; its errors name the line of the file."""
    code = compile("\n" * block.line + block.text, str(path), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    return printed.getvalue()


def check_output(shown: str, printed: str) -> None:
    """Assert that a block printed what its file shows, number by number. Only times may differ."""
    wanted = [_plain(line) for line in shown.rstrip("\n").split("\n")]
    got = [_plain(line) for line in printed.rstrip("\n").split("\n")]
    parts = [part.strip("\n") for part in re.split(r"^…$", "\n".join(wanted), flags=re.MULTILINE)]
    pattern = r"(?:.*\n)*?".join(re.escape(part) + (r"\n" if part else "") for part in parts)
    assert re.fullmatch(pattern, "\n".join(got) + "\n"), f"shown:\n{shown}\nprinted:\n{printed}"


def _plain(line: str) -> str:
    return _TIME.sub(r"0 \2", line.rstrip())
