"""Make the module `keywords` of each op: the keywords of its `space` and `config`, from the fields of its config.

The modules are for editors and type checkers: nothing imports them at run time. `make_docs.py` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.ops.fields import (
    ChoiceType,
    CountType,
    Field,
    FlagType,
    IntegerListType,
    OptionalTileType,
    TileType,
    list_fields,
)
from tilewright.ops.op import Op

OPS_FOLDER = Path(__file__).parent.parent / "src" / "tilewright" / "ops"
_HEAD = '''\
"""The keywords of `{op}.space` and `{op}.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import {typing}

from tilewright.ops.keyword_types import {ours}
'''
LINE_LENGTH = 120


def make_keyword_files(ops: tuple[Op, ...]) -> dict[Path, str]:
    """Make the texts of the modules, by path."""
    return {OPS_FOLDER / op.name / "keywords.py": make_keywords_module(op) for op in ops}


def make_keywords_module(op: Op) -> str:
    """Make the text of an op's module."""
    fields = list_fields(op.config_type)
    sharing: dict[tuple[str, ...], list[str]] = {}
    for field in fields.values():
        if isinstance(field.kind, ChoiceType):
            sharing.setdefault(field.kind.values, []).append(field.name)
    aliases = {values: _make_alias(names) for values, names in sharing.items()}
    choices = {alias: values for values, alias in aliases.items()}
    assert len(choices) == len(aliases), f"two lists of names would have one type: {aliases.values()}"
    config = {name: _format_value_type(field, aliases) for name, field in fields.items()} | dict.fromkeys(
        op.shorthands, "str"
    )
    space = {name: _format_space_type(field, aliases) for name, field in fields.items()}
    space |= dict.fromkeys(op.shorthands, "Several[str]")
    used = " ".join([*config.values(), *space.values()])
    ours = [name for name in ("NumbersValue", "Several", "SeveralTiles", "TileValue") if _mentions(used, name)]
    typing = [*(["Literal", "TypeAlias"] if choices else []), "TypedDict"]
    parts = [_HEAD.format(op=op.name, typing=", ".join(typing), ours=", ".join(ours))]
    parts += ["\n".join(_format_literal(name, values) for name, values in choices.items()) + "\n"] if choices else []
    prefix = "".join(word.capitalize() for word in op.name.split("_"))
    parts += ["\n" + _format_typed_dict(f"{prefix}ConfigKeywords", "One config: a value for each field.", config)]
    parts += [
        "\n" + _format_typed_dict(f"{prefix}SpaceKeywords", "A space: a value, several or all for each field.", space)
    ]
    return "\n".join(parts)


def _mentions(text: str, name: str) -> bool:
    return any(
        word.startswith(name) and not word[len(name) :][:1].isalnum() for word in text.replace("[", " [ ").split()
    )


def _make_alias(names: list[str]) -> str:
    """Name the type of fields with the same values, by the first word of their names."""
    shared = names[0] if len(names) == 1 else names[0].partition("_")[0]
    return "".join(part.capitalize() for part in shared.split("_")) + "Name"


def _format_literal(name: str, values: tuple[str, ...]) -> str:
    """Format a type that completes to the known names and allows any text, which is checked at run time."""
    listed = ", ".join(f'"{value}"' for value in values)
    line = f"{name}: TypeAlias = Literal[{listed}] | str"
    if len(line) <= LINE_LENGTH:
        return line
    return (
        f"{name}: TypeAlias = (\n    Literal[\n" + "".join(f'        "{v}",\n' for v in values) + "    ]\n    | str\n)"
    )


def _format_typed_dict(name: str, doc: str, keywords: dict[str, str]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{doc}"""', ""]
    return "\n".join([*lines, *(f"    {keyword}: {kind}" for keyword, kind in keywords.items())]) + "\n"


def _format_value_type(field: Field, aliases: Mapping[tuple[str, ...], str]) -> str:
    kind: object = field.kind
    if isinstance(kind, ChoiceType):
        return aliases[kind.values]
    if isinstance(kind, OptionalTileType):
        return "TileValue | None"
    plain = {FlagType: "bool", CountType: "int", TileType: "TileValue", IntegerListType: "NumbersValue"}
    if type(kind) not in plain:
        raise TypeError(
            f"{field.name} is of kind {type(kind).__name__}, which keywords.py has no type for: add it there"
        )
    return plain[type(kind)]


def _format_space_type(field: Field, aliases: Mapping[tuple[str, ...], str]) -> str:
    return "SeveralTiles" if isinstance(field.kind, TileType) else f"Several[{_format_value_type(field, aliases)}]"
