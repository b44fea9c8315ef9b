"""Completion of values in a shell: GPUs, devices, ops, kernel sets, CK trees, config fields and rules.

Each function is the `shell_complete` of a click parameter. Modules with the values are imported
inside, since most commands are not started for completion.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

# The parameters that name an op, a kernel or a set in the commands.
_SUBJECTS = ("subjects", "subject", "op_name")


def complete_gpus(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """GPUs, and product names that consist of one word. After a comma the next GPU is completed."""
    from tilewright import arch as gpus
    from tilewright.arch.products import cut_product

    before, comma, last = incomplete.rpartition(",")
    described = {name: gpus.load(name).product for name in gpus.arch_names()}
    products = {cut_product(product): f"{product}, {name}" for name, product in described.items()}
    words = {**described, **{word: text for word, text in products.items() if " " not in word}}
    return [CompletionItem(f"{before}{comma}{word}", help=text) for word, text in words.items() if _starts(word, last)]


def complete_devices(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Emulated devices, and the first GPU of this machine. GPUs are not counted: that would load HIP."""
    from tilewright.runtime.device import list_emulated_names

    return _select(("gpu:0", *list_emulated_names()), incomplete)


def complete_ops(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of ops."""
    from tilewright.ops import list_ops

    return _select((op.name for op in list_ops()), incomplete)


def complete_sets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of built-in kernel sets."""
    from tilewright.ops import list_ops

    return _select(dict.fromkeys(name for op in list_ops() for name in op.sets()), incomplete)


def complete_kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ops, built-in sets and files."""
    named = [*complete_ops(ctx, param, incomplete), *complete_sets(ctx, param, incomplete)]
    return [*named, CompletionItem(incomplete, type="file")]


def complete_trees(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of pinned CK trees."""
    from tilewright.building.ck_cache import PINNED_TREES

    return _select(PINNED_TREES, incomplete)


def complete_settings(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Fields as `FIELD=`, of the op that the command line names, else of all ops; then the values of a choice."""
    from tilewright.ops import list_ops
    from tilewright.ops.fields import ChoiceType, list_fields

    # Click does not assign arguments before an option without a value, and this option has none yet.
    named = {*ctx.args, *(name for key in _SUBJECTS for name in _list_words(ctx.params.get(key)))}
    ops = [op for op in list_ops() if op.name in named] or list_ops()
    field, equals, value = incomplete.partition("=")
    if not equals:
        names = dict.fromkeys(name for op in ops for name in (*op.field_names, *op.shorthands))
        return _select((f"{name}=" for name in names), incomplete)
    tables = [list_fields(op.config_type) for op in ops]
    kinds = [fields[field].kind for fields in tables if field in fields]
    choices = dict.fromkeys(choice for kind in kinds if isinstance(kind, ChoiceType) for choice in kind.values)
    return [CompletionItem(f"{field}={choice}") for choice in choices if _starts(choice, value)]


def complete_rules(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes and names of rules."""
    from tilewright.ops import list_ops

    rules = {rule.code: rule for op in list_ops() for rule in (*op.rules, *op.fit_rules)}
    words = [word for rule in rules.values() for word in (rule.code, rule.slug)]
    return _select(dict.fromkeys(words), incomplete)


def _list_words(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, tuple) else ()


def _select(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if _starts(word, incomplete)]


def _starts(word: str, incomplete: str) -> bool:
    return word.lower().startswith(incomplete.lower())
