"""`tilewright rules`: list and explain rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.command import Command
from tilewright.cli.completion import complete_ops, complete_rules
from tilewright.cli.output import add_json_option, print_facts, print_json, print_table

if TYPE_CHECKING:
    from tilewright.ops.op import Op
    from tilewright.ops.rule import Rule

ENFORCERS = {
    "compiler": "the compiler rejects the source",
    "supports": "the built kernel rejects the problem",
    "device": "nobody: results would be wrong",
    "tilewright": "nobody: a limit of Tilewright",
}


@click.command(
    cls=Command,
    examples=("tilewright rules", "tilewright rules R401", "tilewright rules lds-overflow --json"),
)
@click.argument("code", metavar="[CODE]", required=False, shell_complete=complete_rules)
@click.option("--op", "op_name", metavar="OP", shell_complete=complete_ops, help="Show only the rules of this op.")
@add_json_option
def command(code: str | None, op_name: str | None, as_json: bool) -> None:
    """List the rules that configs must follow, or explain one.

    CODE is a rule's code (R401) or its name (lds-overflow). Ops share rules under the same code, each
    with its own examples; --op shows the rule of one op.
    """
    from tilewright.ops import find_op, list_ops

    ops = list_ops() if op_name is None else (find_op(op_name),)
    listed = [(op, rule) for op in ops for rule in (*op.rules, *op.fit_rules)]
    if code is not None:
        listed = _find_rules(listed, code)
    if as_json:
        print_json([_to_json(op, rule) for op, rule in listed])
    elif code is not None:
        for number, (op, rule) in enumerate(listed):
            if number:
                click.echo()
            _print_one(op, rule)
    else:
        _print_all(listed)


def _find_rules(listed: list[tuple[Op, Rule]], code: str) -> list[tuple[Op, Rule]]:
    from tilewright.base.errors import UnknownValueError

    found = [(o, r) for o, r in listed if code.lower() in (r.code.lower(), r.slug.lower())]
    if not found:
        numbered = any(character.isdigit() for character in code)
        known = [rule.code if numbered else rule.slug for _, rule in listed]
        raise UnknownValueError("rule", code, dict.fromkeys(known), "`tilewright rules` lists all.")
    return found


def _to_json(op: Op, rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "slug": rule.slug,
        "op": op.name,
        "what": rule.what,
        "why": rule.why,
        "fix": rule.fix,
        "enforced_by": rule.enforced_by,
        "reads": list(rule.reads),
        "ck": {"since": rule.since or None, "until": rule.until or None},
        "about": "config" if rule in op.rules else "config and problem",
        "examples": {"arch": rule.arch, "good": dict(rule.good), "bad": dict(rule.bad)},
    }


def _print_all(listed: list[tuple[Op, Rule]]) -> None:
    ops = {op.name for op, _ in listed}
    headings = ("code", "rule", "detected by", "requirement")
    rows = [(rule.code, rule.slug, rule.enforced_by, rule.what) for _, rule in listed]
    if len(ops) > 1:
        headings = ("op", *headings)  # type: ignore[assignment]
        rows = [(op.name, *row) for (op, _), row in zip(listed, rows, strict=True)]  # type: ignore[misc]
    print_table(headings, rows, whole=headings[:-1])


def _print_one(op: Op, rule: Rule) -> None:
    click.echo(f"{click.style(f'{rule.code} {rule.slug}', bold=True)}  ({op.name})")
    click.echo()
    print_facts(
        [
            ("what", rule.what),
            ("why", rule.why),
            ("fix", rule.fix),
            ("detected by", f"{rule.enforced_by} ({ENFORCERS[rule.enforced_by]})"),
            ("reads", ", ".join(rule.reads)),
            *([("CK Tile", rule.generations)] if rule.generations else []),
            ("passes", _format_overrides(op, rule.good)),
            ("fails", _format_overrides(op, rule.bad)),
            *_describe_violation(op, rule),
            ("with", f"{_format_other_fields(op, rule)} on {rule.arch}"),
        ]
    )


def _format_overrides(op: Op, overrides: Mapping[str, Any]) -> str:
    """The fields that an example sets."""
    from tilewright.ops.fields import list_fields

    fields = list_fields(op.config_type)
    shown = [
        f"{name}={_format_value(fields[name].kind, fields[name].kind.read(name, value))}"
        for name, value in overrides.items()
        if name in fields
    ]
    problem = overrides.get("problem", {})
    shown += [f"problem {name}={value}" for name, value in problem.items()]
    return ", ".join(shown) or "the fields below"


def _format_other_fields(op: Op, rule: Rule) -> str:
    """The other fields that the rule reads, with their values in both examples."""
    from tilewright.ops.fields import list_fields

    fields, made = list_fields(op.config_type), op.make_example()
    names = [n for n in fields if n in rule.reads and n not in rule.good and n not in rule.bad]
    shown = [f"{name}={_format_value(fields[name].kind, getattr(made, name))}" for name in names]
    return ", ".join(shown) or "any other fields"


def _describe_violation(op: Op, rule: Rule) -> list[tuple[str, str]]:
    """The rule's message for its failing example, if the rule checks configs alone."""
    if rule not in op.rules:
        return []
    violation = rule.find_violation(op.make_example(rule.bad), op.load_example_arch(rule))
    return [] if violation is None else [("", f"→ {violation.message}")]


def _format_value(kind: Any, value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(kind.to_token(value))
