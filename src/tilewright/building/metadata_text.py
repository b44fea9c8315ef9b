"""A strict parser for the metadata that llvm-readelf prints: the subset of YAML that LLVM writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from tilewright.base.errors import ToolchainError

Node: TypeAlias = "str | list[Node] | dict[str, Node]"
Lines: TypeAlias = Sequence[tuple[int, str]]  # indentation and text

_KEY = re.compile(r"(?P<key>[\w.$]+):(?: +(?P<value>\S.*))?")
# Kernels, their arguments and the fields of these: five levels. Code object metadata never has more.
_MAX_DEPTH = 8


def parse_metadata(text: str) -> dict[str, Node]:
    """Parse the single metadata document in the output of `llvm-readelf --notes`."""
    lines = _find_document(text)
    node, end = _parse_block(lines, 0, 0)
    if end != len(lines):
        _reject_line("a line that is indented less than the document", lines[end][1])
    if not isinstance(node, dict):
        _reject_line("a document that is not a table", lines[0][1])
    return node


def _find_document(text: str) -> Lines:
    lines = text.split("\n")
    starts = [n for n, line in enumerate(lines) if line.strip() == "---"]
    if len(starts) != 1:
        raise ToolchainError(
            f"the code object's notes hold {len(starts)} metadata documents, expected 1. "
            "Only code objects for AMD GPUs (amdhsa) have one."
        )
    body: list[tuple[int, str]] = []
    for line in lines[starts[0] + 1 :]:
        if line.rstrip() == "...":
            if not body:
                _reject_line("an empty document", "...")
            return body
        if line.strip():
            body.append((len(line) - len(line.lstrip(" ")), line.strip()))
    return _reject_line("a document without its end mark", lines[-1])


def _parse_block(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    """Parse the table or list whose first line is `start`; also return the line after it."""
    if depth > _MAX_DEPTH:
        _reject_line(f"more than {_MAX_DEPTH} levels", lines[start][1])
    if lines[start][1].startswith("- ") or lines[start][1] == "-":
        return _parse_list(lines, start, depth)
    return _parse_table(lines, start, depth)


def _parse_list(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    indent = lines[start][0]
    items: list[Node] = []
    at = start
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
        content = lines[at][1][2:].strip()
        if _KEY.fullmatch(content):
            end = _find_item_end(lines, at)
            inner = [(indent + 2, content), *lines[at + 1 : end]]
            item, used = _parse_block(inner, 0, depth + 1)
            if used != len(inner):
                _reject_line("a list item that does not line up", inner[used][1])
            at = end
        else:
            item, at = _parse_scalar(content), at + 1
        items.append(item)
    if at == start:
        _reject_line("an empty list item", lines[start][1])
    return items, at


def _find_item_end(lines: Lines, at: int) -> int:
    indent = lines[at][0]
    end = at + 1
    while end < len(lines) and lines[end][0] > indent:
        end += 1
    return end


def _parse_table(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    indent = lines[start][0]
    table: dict[str, Node] = {}
    at = start
    while at < len(lines) and lines[at][0] == indent:
        match = _KEY.fullmatch(lines[at][1])
        if match is None:
            _reject_line("a line that is not 'key: value'", lines[at][1])
        if match["key"] in table:
            _reject_line("a key twice", lines[at][1])
        if match["value"] is not None:
            table[match["key"]], at = _parse_scalar(match["value"]), at + 1
        elif at + 1 < len(lines) and lines[at + 1][0] > indent:
            table[match["key"]], at = _parse_block(lines, at + 1, depth + 1)
        else:
            _reject_line("a key without a value", lines[at][1])
    return table, at


def _parse_scalar(text: str) -> Node:
    if text == "[]":
        return []
    if text == "{}":
        return {}
    if text.startswith("'"):
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            _reject_line("a text without its closing quote", text)
        return text[1:-1].replace("''", "'")
    if text[:1] in '"[{|>&*!%@`':
        _reject_line("a value of a form that LLVM does not write here", text)
    return text


def _reject_line(what: str, line: str) -> NoReturn:
    raise ToolchainError(
        f"the metadata that llvm-readelf printed has {what}: {line[:200]!r}. "
        "This layout is unknown; use the llvm-readelf of the compiler that created the code object."
    )
