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
# The topics: their folders, and their examples in reading order. Other folders have pages of their own.
TOPICS = {
    "gemm": "Products of matrices",
    "conv": "Convolution",
    "fmha": "Attention",
    "torch": "PyTorch",
    "select": "Legal kernels and the best one, without a compiler",
    "sweep": "Measurements",
    "emulator": "The emulated device",
}
ORDER = {
    "gemm": "matmul bias_activation views_and_out device_arrays batched build_ahead run types layouts fp8 int8 multi_d "
    "split_k preshuffle padding verify_a_set measure save_and_load two_registries pack",
    "conv": "conv stride_and_dilation groups depthwise lines volumes input_gradient weight_gradient transposed "
    "gemm_inside forward backward_data backward_weight choose_kernel explicit_gemm",
    "fmha": "attention window shared_heads lengths bias alibi soft_cap sinks dropout fp8 packed_sequences parts "
    "append_rotary decode_pages prefill prefill_pages decoding gradients deterministic training tensors stages splits",
    "torch": "linear conv_training replace_modules compiled autocast flash_attn transformers_model tensors",
    "select": "legal_kernels why_rejected kernel_and_problem explain_choice estimate_sizes priorities sets names gpus "
    "several_gpus rules render_source kernel_set_file problem_list learned_choice",
    "sweep": "emulated winners tune_on_budget query",
    "emulator": "counters launches inspect modes missing_barrier own_kernel triton_softmax",
}
INTRO = """\
Each program shows one idea in at most 60 lines, checks its own result, and runs without a GPU. Tests run all of them
and compare the printed output with this page. To run them on your GPU, replace `emulated:gfx942` with `gpu:0`.

Programs in C++ are in [examples/cpp](../examples/cpp/README.md), one in C is in
[examples/pack](../examples/pack/README.md)."""


@dataclass(frozen=True)
class Example:
    """A program. Its docstring is a title of one line, and usually a paragraph."""

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
        """The first line of the docstring, without the full stop."""
        return self._docstring.partition("\n")[0].removesuffix(".")

    @property
    def doc(self) -> str:
        """The docstring after its first line."""
        return self._docstring.partition("\n")[2].strip()

    @property
    def code(self) -> str:
        """The program after its docstring, without comments for the formatter."""
        end = ast.parse(self.text).body[0].end_lineno
        return "\n".join(self.text.splitlines()[end:]).strip().replace("  # fmt: skip", "")

    @property
    def _docstring(self) -> str:
        return ast.get_docstring(ast.parse(self.text)) or ""

    @property
    def anchor(self) -> str:
        return make_anchor(self.title)

    @property
    def output(self) -> Path:
        """The file with the printed output."""
        return OUTPUTS / self.path.relative_to(EXAMPLES).with_suffix(".txt")


def list_examples() -> list[Example]:
    """List the examples of all topics, in reading order. An example that ORDER does not name is an error."""
    found = []
    for topic in TOPICS:
        names = ORDER[topic].split()
        there = {path.stem: path for path in (EXAMPLES / topic).glob("*.py")}
        if set(names) != set(there):
            different = ", ".join(sorted(set(names) ^ set(there)))
            raise SystemExit(
                f"examples/{topic} and ORDER in tools/gallery_page.py have different examples: {different}"
            )
        found += [Example(there[name], there[name].read_text(encoding="utf-8")) for name in names]
    return found


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
        parts += [f"## {title}", format_table(("example", "file"), rows)]
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
    parts = [f"### {example.title}", example.doc, link]
    parts += [f"<!-- not run -->\n```python\n{example.code}\n```", f"It prints:\n\n```text\n{printed}\n```"]
    return "\n\n".join(filter(None, parts))
