"""Make docs/gallery.md: the Python examples by topic, each with its source and its printed output.

Outputs are in examples/outputs. `pytest tests/docs/test_examples.py --update-golden` runs the examples and writes them.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from markdown_text import format_page, format_table

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OUTPUTS = EXAMPLES / "outputs"
PAGE = ROOT / "docs" / "gallery.md"
# Folders of examples, in the order of the page. Other folders have pages of their own.
TOPICS = {
    "gemm": "Products of matrices",
    "conv": "Convolution",
    "fmha": "Attention",
    "torch": "PyTorch",
    "select": "Legal kernels and the best one, without a compiler",
    "sweep": "Measurements",
    "emulator": "The emulated device",
}
INTRO = """\
Each program shows one idea in at most 60 lines, checks its own result, and runs without a GPU. Tests run all of them
and compare the printed output with this page. To run them on your GPU, replace `emulated:gfx942` with `gpu:0`.

Programs in C and C++ are in [examples/pack](../examples/pack/README.md)."""


@dataclass(frozen=True)
class Example:
    """A program. `title` is the first line of its docstring without the full stop."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The path below examples/."""
        return self.path.relative_to(EXAMPLES).as_posix()

    @property
    def topic(self) -> str:
        return self.path.parent.name

    @property
    def title(self) -> str:
        return (ast.get_docstring(ast.parse(self.text)) or "").partition("\n")[0].removesuffix(".")

    @property
    def anchor(self) -> str:
        return make_anchor(self.title)

    @property
    def output(self) -> Path:
        """The file with the printed output."""
        return OUTPUTS / self.path.relative_to(EXAMPLES).with_suffix(".txt")


def list_examples() -> list[Example]:
    """List the examples of all topics: in a topic, the shorter programs first."""
    found = [
        Example(path, path.read_text(encoding="utf-8"))
        for topic in TOPICS
        for path in sorted((EXAMPLES / topic).glob("*.py"))
    ]
    return sorted(found, key=lambda each: (list(TOPICS).index(each.topic), each.text.count("\n"), each.name))


def make_anchor(title: str) -> str:
    """Make the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def find_anchor(path: str) -> str:
    """Find the anchor on the page for a path below examples/: of an example or a topic; empty for other paths."""
    return _list_anchors().get(path, "")


@functools.cache
def _list_anchors() -> dict[str, str]:
    topics = {topic: make_anchor(title) for topic, title in TOPICS.items()}
    return topics | {each.name: each.anchor for each in list_examples()}


def make_gallery_page() -> str:
    """Make the text of the page."""
    parts = [INTRO]
    examples = list_examples()
    for topic, title in TOPICS.items():
        members = [each for each in examples if each.topic == topic]
        rows = [(f"[{each.title}](#{each.anchor})", f"`{each.name}`") for each in members]
        parts += [f"## {title}", format_table(("you learn to", "file"), rows)]
        parts += [_format_example(each) for each in members]
    return format_page("Gallery", *parts)


def _format_example(example: Example) -> str:
    if not example.output.is_file():
        raise SystemExit(
            f"{example.name} has no output in {example.output.relative_to(ROOT)}: "
            "write it with `pytest tests/docs/test_examples.py --update-golden`"
        )
    printed = example.output.read_text(encoding="utf-8").rstrip()
    link = f"[examples/{example.name}](../examples/{example.name})"
    return "\n\n".join(
        [
            f"### {example.title}",
            link,
            f"<!-- not run -->\n```python\n{example.text.rstrip()}\n```",
            f"It prints:\n\n```text\n{printed}\n```",
        ]
    )
