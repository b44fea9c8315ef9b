"""The module `keywords` of each op: which keywords its `space` and `config` take, made from the fields of its config.

It is for editors and type checkers only, and nothing imports it when a program runs. `make_docs.py` writes it.
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
MOST_ON_A_LINE = 120


def keyword_files(ops: tuple[Op, ...]) -> dict[Path, str]:
    """The modules of the shipped ops, with the texts that they must have."""
    return {OPS_FOLDER / op.name / "keywords.py": keywords_text(op) for op in ops}


def keywords_text(op: Op) -> str:
    """The module of one op."""
    fields = list_fields(op.config_type)
    sharing: dict[tuple[str, ...], list[str]] = {}
    for field in fields.values():
        if isinstance(field.kind, ChoiceType):
            sharing.setdefault(field.kind.values, []).append(field.name)
    aliases = {values: _alias(names) for values, names in sharing.items()}
    choices = {alias: values for values, alias in aliases.items()}
    assert len(choices) == len(aliases), f"two lists of names would have one type: {aliases.values()}"
    config = {name: _value(field, aliases) for name, field in fields.items()} | dict.fromkeys(op.shorthands, "str")
    space = {name: _several(field, aliases) for name, field in fields.items()}
    space |= dict.fromkeys(op.shorthands, "Several[str]")
    used = " ".join([*config.values(), *space.values()])
    ours = [name for name in ("NumbersValue", "Several", "SeveralTiles", "TileValue") if _uses(used, name)]
    typing = [*(["Literal", "TypeAlias"] if choices else []), "TypedDict"]
    parts = [_HEAD.format(op=op.name, typing=", ".join(typing), ours=", ".join(ours))]
    parts += ["\n".join(_literal(name, values) for name, values in choices.items()) + "\n"] if choices else []
    prefix = "".join(word.capitalize() for word in op.name.split("_"))
    parts += ["\n" + _table(f"{prefix}ConfigKeywords", "One config: a value for each field.", config)]
    parts += ["\n" + _table(f"{prefix}SpaceKeywords", "A space: a value, several or all for each field.", space)]
    return "\n".join(parts)


def _uses(text: str, name: str) -> bool:
    return any(
        word.startswith(name) and not word[len(name) :][:1].isalnum() for word in text.replace("[", " [ ").split()
    )


def _alias(names: list[str]) -> str:
    """The type of fields that take the same names: called after the first word of theirs."""
    shared = names[0] if len(names) == 1 else names[0].partition("_")[0]
    return "".join(part.capitalize() for part in shared.split("_")) + "Name"


def _literal(name: str, values: tuple[str, ...]) -> str:
    """A type that completes to the known names and takes any text: which one is known is checked when it runs."""
    listed = ", ".join(f'"{value}"' for value in values)
    line = f"{name}: TypeAlias = Literal[{listed}] | str"
    if len(line) <= MOST_ON_A_LINE:
        return line
    return (
        f"{name}: TypeAlias = (\n    Literal[\n" + "".join(f'        "{v}",\n' for v in values) + "    ]\n    | str\n)"
    )


def _table(name: str, doc: str, keywords: dict[str, str]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{doc}"""', ""]
    return "\n".join([*lines, *(f"    {keyword}: {kind}" for keyword, kind in keywords.items())]) + "\n"


def _value(field: Field, aliases: Mapping[tuple[str, ...], str]) -> str:
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


def _several(field: Field, aliases: Mapping[tuple[str, ...], str]) -> str:
    return "SeveralTiles" if isinstance(field.kind, TileType) else f"Several[{_value(field, aliases)}]"
