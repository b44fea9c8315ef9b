"""Write docs/reference/ and docs/gallery.md from the code, docs/coverage.md, and the module `keywords` of each op.

    python tools/make_docs.py            write the files that changed
    python tools/make_docs.py --check    write nothing, fail if a file is stale

The text does not depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from api_page import make_api_page
from coverage_page import PAGE as COVERAGE
from coverage_page import make_coverage_page
from gallery_page import PAGE as GALLERY
from gallery_page import make_gallery_page
from gpu_page import make_gpus_page
from keywords import make_keyword_files
from markdown_text import format_code, format_page, format_table, wrap_paragraph
from tilewright import arch as archs
from tilewright.base.knobs import ARCH_PATH, KNOBS
from tilewright.cli.app import root
from tilewright.cli.command import Option, list_main_names
from tilewright.ops import OPS
from tilewright.ops.fields import Field, format_tokens, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_field import ProblemField, list_declared_fields
from tilewright.ops.rule import Rule

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
COLUMNS = 100  # width of the help texts
MAX_LISTED = 16  # longer lists of values are counted instead
NOTICED = {
    "compiler": "the compiler rejects the source",
    "supports": "the built kernel rejects the problem",
    "device": "not noticed; results would be wrong",
    "tilewright": "not noticed; the limit is Tilewright's own",
}


def format_token(field: Field, value: Any) -> str:
    """Format a field's value as for the option `-s`."""
    read = field.kind.read(field.name, value)
    return str(read).lower() if isinstance(read, bool) else field.kind.to_token(read)


# Rules


def make_rules_page() -> str:
    """Document every rule of every op."""
    legend = format_table(("noticed by", "effect without the rule"), NOTICED.items())
    intro = (
        "A rule has a code and a name. `tilewright rules CODE` prints one rule, `tilewright check` checks your config\n"
        "with all of them. To write your own, see [add a rule](../add-a-rule.md)."
    )
    return format_page("Rules", intro, legend, *(part for op in OPS for part in _format_op_rules(op)))


def _format_op_rules(op: Op) -> Iterator[str]:
    example = ", ".join(f"`{n}={format_token(list_fields(op.config_type)[n], v)}`" for n, v in op.example.items())
    yield f"## {op.name}"
    yield wrap_paragraph(f"Examples change this config: {example}.")
    if op.fit_rules:
        sizes = ", ".join(f"`{name}={value}`" for name, value in op.example_problem.items())
        yield wrap_paragraph(f"If a rule reads a problem, it is {sizes}, with the named changes.")
    for title, rules in (("Configs", op.rules), ("Whether a kernel fits a problem", op.fit_rules)):
        if rules:
            yield f"### {title}"
            listed = ((f"[{r.code}](#{_make_anchor(r)})", r.slug, r.enforced_by, r.what) for r in rules)
            yield format_table(("code", "name", "noticed by", "requirement"), listed)
            yield from (_format_rule(op, rule) for rule in rules)


def _make_anchor(rule: Rule) -> str:
    return f"{rule.code}-{rule.slug}".lower()


def _format_rule(op: Op, rule: Rule) -> str:
    facts = [
        ("why", rule.why),
        ("fix", rule.fix),
        ("noticed by", f"{rule.enforced_by}: {NOTICED[rule.enforced_by]}"),
        ("reads", ", ".join(format_code(name) for name in rule.reads)),
        *([("CK Tile", rule.generations)] if rule.generations else []),
        ("passes", f"{_format_overrides(op, rule.good)} on {rule.arch}"),
        ("fails", f"{_format_overrides(op, rule.bad)} on {rule.arch}"),
        ("message", _format_message(op, rule)),
    ]
    return f"#### {rule.code} {rule.slug}\n\n{rule.what}\n\n{format_table(('', ''), facts)}"


def _format_overrides(op: Op, overrides: Mapping[str, Any]) -> str:
    fields = list_fields(op.config_type)
    parts = [f"`{name}={format_token(fields[name], value)}`" for name, value in overrides.items() if name in fields]
    parts += [f"problem `{name}={value}`" for name, value in overrides.get("problem", {}).items()]
    return ", ".join(parts) or "the example unchanged"


def _format_message(op: Op, rule: Rule) -> str:
    arch = op.load_example_arch(rule)
    values = dict(rule.bad)
    problem = op.problem_type(**{**op.example_problem, **values.pop("problem", {})})
    config = op.make_example(values)
    found = rule.find_violation(config, arch) if rule in op.rules else rule.find_violation(config, problem, arch)
    if found is None:
        raise SystemExit(f"{rule.code}: its failing example passes")
    return found.message


# Fields


def make_fields_page() -> str:
    """Document the fields of every op's configs and problems."""
    intro = (
        "The fields of a config distinguish the kernels of an op. You must set a field that has no default. A name\n"
        "shows the fields without a default in this order, then the others if they differ from their default.\n"
        '`"*"` in a space stands for the values worth trying on your GPU.\n\n'
        "The fields of a problem describe one computation. `--problem` and problem files take them, and you must set\n"
        "those without a default. `tilewright problems OP` prints the same tables."
    )
    return format_page("Fields of configs and problems", intro, *(part for op in OPS for part in _format_op_fields(op)))


def _format_op_fields(op: Op) -> Iterator[str]:
    fields = list_fields(op.config_type).values()
    yield f"## {op.name}\n\nThe {op.doc}."
    yield f"### Problems of {op.name}\n\n{_format_problem_fields(op)}"
    yield f"### Configs of {op.name}"
    rows = [
        (format_code(f.name), f.kind.describe(), _format_default(f), format_code(_format_name_part(op, f)), f.doc)
        for f in fields
    ]
    yield format_table(("field", "takes", "default", "in names", "meaning"), rows)
    if op.shorthands:
        names = ", ".join(format_code(name) for name in op.shorthands)
        yield f"Shorthands that stand for several fields: {names}."
    yield '### What `"*"` tries\n\nFields that are not listed here are tried with every value that they take.'
    starred = (
        (format_code(f.name), values)
        for f in fields
        if f.name in op.stars
        for values in _format_searched_values(op, f.name)
    )
    yield format_table(("field", "values"), starred)


def _format_problem_fields(op: Op) -> str:
    rows = [
        (format_code(f.name), f.kind.describe(), _format_problem_default(f), f.doc + " (shorthand)" * f.shorthand)
        for f in list_declared_fields(op.problem_type).values()
    ]
    return format_table(("field", "takes", "default", "meaning"), rows)


def _format_problem_default(field: ProblemField) -> str:
    value, colon, meaning = field.describe_default().partition(": ")
    if not colon and field.stands_for is not None:
        return value  # the default is empty: only the value that it stands for is described
    return f"{format_code(value)}{colon}{meaning}" if value else ""


def _format_default(field: Field) -> str:
    return "" if field.required else format_code(format_token(field, field.default))


def _format_name_part(op: Op, field: Field) -> str:
    """Format the field's part of a kernel name, with the example's value if it has one."""
    if field.required:
        return field.to_token(field.kind.read(field.name, op.example[field.name])) or ""
    return field.tag if isinstance(field.default, bool) else f"{field.tag}…"


def _format_searched_values(op: Op, name: str) -> list[str]:
    """Format the searched values of a field, once for each group of GPUs with the same values."""
    field = list_fields(op.config_type)[name]
    groups: dict[str, list[str]] = {}
    for arch in archs.arch_names():
        values = op.list_candidates(name, archs.load(arch))
        parts = ", ".join(format_token(field, value) for value in values)
        if len(values) > MAX_LISTED:
            parts = f"{len(values)} values from {format_token(field, values[0])} to {format_token(field, values[-1])}"
        groups.setdefault(parts or "nothing: you must list its values", []).append(arch)
    if len(groups) == 1:
        return list(groups)
    return [f"{', '.join(names)}: {parts}" for parts, names in groups.items()]


# Knobs and commands


def make_knobs_page() -> str:
    """Document every environment variable."""
    intro = (
        "Tilewright reads these variables and no others. An empty value counts as not set. An invalid value is an\n"
        "error. `tilewright knobs` shows you the current values."
    )
    rows = [(format_code(knob.name), knob.kind, knob.doc) for knob in KNOBS]
    return format_page("Environment variables", intro, format_table(("variable", "takes", "meaning"), rows))


def make_cli_page() -> str:
    """Document the help text of every command."""
    parts = []
    for name, text in _iterate_help(root, click.Context(root, info_name="tilewright", terminal_width=COLUMNS)):
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## {name}\n\n```text\n{lines}\n```")
    note = "Some options have other names, which `--help` does not list:"
    return format_page(
        "Commands", "The output of `--help`, at 100 columns.", *parts, "## Other names", note, _format_aliases()
    )


def _iterate_help(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for each in _iterate_contexts(command, context):
        yield each.command_path, each.command.get_help(each)


def _iterate_contexts(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield a context for a command and each of its sub-commands."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _iterate_contexts(inner, click.Context(inner, info_name=name, parent=context))


def _format_aliases() -> str:
    """Document the option names that the help texts leave out."""
    commands: dict[tuple[str, Sequence[str]], list[str]] = {}
    for context in _iterate_contexts(root, click.Context(root, info_name="tilewright")):
        for option in context.command.params:
            if isinstance(option, Option) and option.aliases:
                command = context.command_path.removeprefix("tilewright ")
                commands.setdefault((list_main_names(option)[0], option.aliases), []).append(command)
    rows = [
        (format_code(name), ", ".join(map(format_code, aliases)), ", ".join(map(format_code, where)))
        for (name, aliases), where in commands.items()
    ]
    return format_table(("option", "other names", "commands"), rows)


# Kernel sets

MAX_NAMED = 60  # larger sets are not listed by name
Members: TypeAlias = Mapping[str, Sequence[Kernel]]  # the kernels of a set on each GPU


def make_sets_page() -> str:
    """Document the preselected sets and their members."""
    intro = (
        "A preselected set is a short list of kernels for a purpose. All its kernels are legal on every GPU that it\n"
        "names. `tilewright generate --preselected NAME` writes their sources; with `--dry-run` you get their names.\n"
        f"Sets of more than {MAX_NAMED} kernels for a GPU are only counted here."
    )
    known = [kernel_set for op in OPS for kernel_set in op.sets().values()]
    # Computed once: a large set takes a second.
    members = {s.name: {arch: list(s.kernels(arch)) for arch in s.archs} for s in known}
    rows = [(_format_set_cell(s.name, members[s.name]), s.op, _format_counts(members[s.name]), s.doc) for s in known]
    parts = (f"## {name}\n\n{_format_members(found)}" for name, found in members.items() if _is_listed(found))
    return format_page(
        "Preselected kernel sets", intro, format_table(("set", "op", "kernels", "purpose"), rows), *parts
    )


def _is_listed(members: Members) -> bool:
    return max(map(len, members.values())) <= MAX_NAMED


def _format_set_cell(name: str, members: Members) -> str:
    return f"[{name}](#{name})" if _is_listed(members) else name


def _format_counts(members: Members) -> str:
    return ", ".join(f"{arch} {len(kernels)}" for arch, kernels in members.items())


def _format_members(members: Members) -> str:
    """Format the configs as in kernel names, once for each group of GPUs that have them."""
    where: dict[str, list[str]] = {}
    for arch, kernels in members.items():
        for kernel in kernels:
            where.setdefault("-".join(format_tokens(kernel.config)), []).append(arch)
    groups: dict[tuple[str, ...], list[str]] = {}
    for config, names in where.items():
        groups.setdefault(tuple(names), []).append(config)
    listings = ("\n".join(["```text", *configs, "```"]) for configs in groups.values())
    return "\n\n".join(f"On {', '.join(names)}:\n\n{text}" for names, text in zip(groups, listings, strict=True))


PAGES: dict[str, Callable[[], str]] = {
    "rules.md": make_rules_page,
    "fields.md": make_fields_page,
    "knobs.md": make_knobs_page,
    "cli.md": make_cli_page,
    "gpus.md": make_gpus_page,
    "python.md": make_api_page,
    "sets.md": make_sets_page,
}


def find_stale(folder: Path) -> dict[Path, str]:
    """Find the generated documents and modules that are stale, with their new text."""
    if ARCH_PATH.get() is not None:
        raise SystemExit(f"{ARCH_PATH.name} is set; unset it: the documents describe the GPUs that are shipped")
    wanted = {folder / name: make() for name, make in PAGES.items()}
    if folder == FOLDER:
        wanted |= make_keyword_files(OPS)
        wanted[COVERAGE] = make_coverage_page()
        wanted[GALLERY] = make_gallery_page()
    return {path: text for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="instead of docs/reference")
    options = parser.parse_args(arguments)
    found = find_stale(options.folder)
    for path, text in found.items():
        if options.check:
            print(f"{path} is stale: run `make docs`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{path} written")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
