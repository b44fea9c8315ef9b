"""Make docs/reference/python.md: the public modules, with the signature and the first paragraph of each name."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from markdown_text import format_page, wrap_paragraph

# The public modules. Everything else may change without notice.
PUBLIC = (
    "tilewright",
    "tilewright.arch",
    "tilewright.bench",
    "tilewright.building",
    "tilewright.dispatch",
    "tilewright.emulator",
    "tilewright.errors",
    "tilewright.events",
    "tilewright.learn",
    "tilewright.ops",
    "tilewright.ops.fmha",
    "tilewright.ops.gemm",
    "tilewright.ops.gemm_quant",
    "tilewright.ops.grouped_conv",
    "tilewright.ops.grouped_gemm",
    "tilewright.ops.moe_sorting",
    "tilewright.ops.norm",
    "tilewright.ops.topk",
    "tilewright.runtime",
    "tilewright.select",
    "tilewright.torch",
    "tilewright.triton",
)
# Modules for authors of ops and rules, with their public names.
EXTENSION = {
    "tilewright.arch.dtypes": ("DType", "find_dtype"),
    "tilewright.arch.number_formats": ("compute_spacing", "to_numpy_dtype"),
    "tilewright.ops.c_interface": ("SUPPORT",),
    "tilewright.ops.call_header": ("format_header",),
    "tilewright.ops.call_struct": ("WORKSPACE", "CallStruct", "declare_number", "declare_numbers", "declare_pointer"),
    "tilewright.ops.cost_model.streaming": ("StreamedSizes", "StreamingGroup", "make_streaming_cost"),
    "tilewright.ops.execution": ("Execution", "Preparation", "Tensor", "import_on_call"),
    "tilewright.ops.fields": (
        *("ChoiceType", "ConfigBase", "CountType", "FlagType", "TileType"),
        *("config_field", "format_tokens"),
    ),
    "tilewright.ops.kind": ("Kind",),
    "tilewright.ops.problem_field": (
        *("Derived", "ExtentsType", "IntegerType", "NumberType", "ProblemBase"),
        "problem_field",
    ),
    "tilewright.ops.rule": ("Rejection", "Rule", "find_violations", "rule"),
    "tilewright.ops.rule_forms": ("divides", "equal", "one_of"),
    "tilewright.ops.strides": ("check_strides", "packed_strides"),
    "tilewright.ops.tolerance": ("Tolerance",),
}
WIDEST = 100  # longer signatures are printed without types
INTRO = (
    "Import from these modules only: other modules may change without notice. Names are imported on first use, so that "
    "`import tilewright` is fast and needs no extra."
)


def list_public_names() -> dict[str, tuple[str, ...]]:
    """List the public names of each public module."""
    listed = {name: tuple(importlib.import_module(name).__all__) for name in PUBLIC}
    return {**listed, **EXTENSION}


def make_api_page() -> str:
    """Document the public modules."""
    parts = [part for name, names in list_public_names().items() for part in _format_module(name, names)]
    return format_page("Python API", wrap_paragraph(INTRO), *parts)


def _format_module(name: str, names: tuple[str, ...]) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"## {name}"
    yield wrap_paragraph(_read_first_paragraph(module))
    for each in sorted(names, key=str.lower):
        if not each.startswith("__"):
            yield _format_name(module, each)


def _format_name(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    title = f"### `{name}`"
    if isinstance(value, ModuleType):
        return f"{title}\n\nThe module `{value.__name__}`, see below."
    if not callable(value):
        return f"{title}\n\n{_CONSTANTS[name]}"
    signature = _format_signature(name, value)
    text = wrap_paragraph(_read_first_paragraph(value))
    return "\n\n".join(part for part in (title, signature, text) if part)


_CONSTANTS = {
    "OP": "The op: its fields, rules, kernel sets and execution.",
    "OPS": "The ops of Tilewright itself.",
    "SUPPORT": "The file of the header tilewright_call.hpp, for `Op.support`.",
    "WORKSPACE": "The members of a call's struct with the address and the size of a workspace.",
}


def _format_signature(name: str, value: Any) -> str:
    """Format the signature, without types if it is long. Exceptions do not have a useful one."""
    if isinstance(value, type) and issubclass(value, Exception):
        return ""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    parameters = [each for each in signature.parameters.values() if not each.name.startswith("_")]
    signature = signature.replace(parameters=parameters)
    if isinstance(value, type):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    text = _clean(f"{name}{signature}")
    if len(text) > WIDEST:
        bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
        text = _clean(f"{name}{signature.replace(parameters=bare)}")
    if len(text) > WIDEST:
        text = ",\n    ".join(part.strip() for part in text.split(", "))
    return f"```text\n{text}\n```"


def _clean(text: str) -> str:
    """Remove quotes around annotations, and values whose text depends on the process."""
    text = re.sub(r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'", lambda found: found[1] or found[2], text)
    return re.sub(r"<factory>|<(?:[^<>]|<lambda>|<locals>)* at 0x[0-9a-f]+>", "…", text)


def _read_first_paragraph(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return " ".join(text.split("\n\n")[0].split())
