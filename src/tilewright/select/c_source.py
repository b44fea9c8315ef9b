"""Kernel selection as C source, for programs without Python: the same estimates, trees and order."""

from __future__ import annotations

import functools
import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from tilewright.arch.spec import Arch
from tilewright.base.errors import BundleError, InvalidValueError, MissingExtraError
from tilewright.codegen.templates import load_templates
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import CostModel, ResourceUse
from tilewright.ops.cost_model.expression import Trace, find_variables, format_constant, write_c_lines
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.traced_problem import list_known_values, write_problem_numbers
from tilewright.ops.in_c.fit_functions import translate_fit_rules
from tilewright.ops.in_c.problem_functions import write_model_inputs
from tilewright.ops.in_c.problem_struct import ProblemStruct
from tilewright.ops.in_c.statements import ARITHMETIC
from tilewright.ops.kernel import DIGEST_LENGTH, Kernel
from tilewright.ops.op import Op
from tilewright.select.chain import RERANKED

if TYPE_CHECKING:
    from tilewright.select.bundle import Bundle
    from tilewright.select.forest import Forest

_HERE = Path(__file__).parent
# Number of values of the 16-bit columns of the C tables.
_MOST = 1 << 15
# Bits of a kernel's bundle mask.
_MOST_BUNDLES = 32
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# Keywords of C that a model input could be named.
_C_WORDS = {"auto", "case", "char", "const", "default", "do", "double", "enum", "extern", "float", "goto", "inline"}
_C_WORDS |= {"int", "long", "register", "restrict", "short", "signed", "sizeof", "static", "struct", "switch"}
_C_WORDS |= {"typedef", "union", "unsigned", "void", "volatile"}


def render_rank_sources(
    arch: Arch,
    kernels: Sequence[Kernel],
    uses: Mapping[Kernel, ResourceUse] | None = None,
    bundles: Sequence[Bundle] | None = None,
) -> dict[str, str]:
    """C sources for the kernels of a table, in its order: op → a source that defines `tw_<op>_rank` of pack.h.

    Ops without an estimate, or without one for C, are left out. The kernels of an op must be consecutive. `uses` has
    the resource usage from their code objects; `bundles` None means the built-in bundles of the ops.
    """
    sources = {}
    first = 0
    for name, group in itertools.groupby(kernels, key=lambda kernel: kernel.op):
        if name in sources:
            raise InvalidValueError(f"kernels of {name} are not consecutive: sort the kernels by their names")
        own = list(group)
        op = find_op(name)
        if op.cost is not None and op.cost.in_c is not None:
            sources[name] = _render_source(
                op, op.cost, arch, own, first, uses or {}, _select_bundles(op, arch, bundles)
            )
        first += len(own)
    return sources


@dataclass(frozen=True)
class _KernelRow:
    """One kernel for the template."""

    slug: str
    numbers: Sequence[str]
    kind: int
    whole: int
    bundles: int  # bit i is set if its fields match bundle i


@dataclass(frozen=True)
class _CForest:
    """The tables of one forest as lines of C."""

    nodes: Sequence[str]
    roots: Sequence[str]
    depths: Sequence[str]
    trees: int


@dataclass(frozen=True)
class _CBundle:
    """A bundle for the template."""

    name: str
    digest: str
    only_order: bool
    condition: str  # C condition on the arguments
    forests: Sequence[_CForest]


def _render_source(
    op: Op,
    cost: CostModel,
    arch: Arch,
    kernels: Sequence[Kernel],
    first: int,
    uses: Mapping[Kernel, ResourceUse],
    bundles: Sequence[Bundle],
) -> str:
    assert cost.in_c is not None
    columns = [cost.kernel_numbers(kernel.config, arch, uses.get(kernel)) for kernel in kernels]
    trace = Trace()
    problem_names = cost.problem_numbers(op.problem_type(**op.example_problem))
    p, k = (
        trace.add_variables("p", _check_member_names(problem_names)),
        trace.add_variables("k", _check_member_names(columns[0])),
    )
    estimate = cost.estimate(p, k, arch)
    features = cost.features(p, k, estimate, arch) if bundles else {}
    read = find_variables([estimate.us, *features.values()])
    names = [name for name in columns[0] if f"k->{name}" in read]
    functions, kinds = _trace_problem_numbers(cost.problem_numbers, cost.in_c, kernels)
    wholes, whole_kinds = _trace_whole_problems(op, cost, arch, kernels)
    asked = _BundleConditions(cost.in_c, bundles)
    rows = [
        _KernelRow(
            kernel.slug,
            [format_constant(column[name]) for name in names],
            kind,
            whole,
            asked.compute_mask(kernel),
        )
        for kernel, column, kind, whole in zip(kernels, columns, kinds, whole_kinds, strict=True)
    ]
    _require_small(f"kinds of {op.name} kernels in one pack", len(functions), _MOST)
    _require_small(f"bundles for {op.name} on {arch.name}", len(bundles), _MOST_BUNDLES)
    return (
        _load_templates()
        .get_template("rank.c.j2")
        .render(
            op=op.name,
            gpu=arch.name,
            prefix=kernels[0].symbol[: -DIGEST_LENGTH - 1],
            first=first,
            reranked=RERANKED,
            problem_names=list(problem_names),
            functions=functions,
            wholes=wholes,
            arithmetic=ARITHMETIC,
            kernels=rows,
            names=names,
            estimate=write_c_lines({"us": estimate.us}),
            features=list(features),
            see=write_c_lines({f"seen[{place}]": value for place, value in enumerate(features.values())}),
            bundles=[_build_c_bundle(bundle, asked.format_condition(bundle)) for bundle in bundles],
        )
    )


def _trace_problem_numbers(
    problem_numbers: Callable[[Any], Mapping[str, Any]], in_c: CModelInputs, kernels: Sequence[Kernel]
) -> tuple[list[list[str]], list[int]]:
    """The C functions for the model inputs of a problem, each as its statements, and the number of each kernel's."""
    functions: list[list[str]] = []
    numbers: dict[tuple[Any, ...], int] = {}
    kinds = []
    for kernel in kernels:
        key = list_known_values(in_c, kernel.config)
        if key not in numbers:
            lines = write_problem_numbers(problem_numbers, in_c, kernel.config)
            if lines not in functions:
                functions.append(lines)
            numbers[key] = functions.index(lines)
        kinds.append(numbers[key])
    return functions, kinds


def _trace_whole_problems(
    op: Op, cost: CostModel, arch: Arch, kernels: Sequence[Kernel]
) -> tuple[list[list[str]], list[int]]:
    """The C functions for the model inputs of a whole problem, and the number of each kernel's; none for an op without
    problems in C. They rely on the fields that problems must have for the kernel."""
    struct = ProblemStruct(op.problem_type)
    if op.execution is None or op.execution.call is None or op.name != struct.op:
        return [], [0] * len(kernels)
    facts = translate_fit_rules(struct, op.fit_rules, kernels, arch).facts
    functions: list[list[str]] = []
    numbers: dict[frozenset[tuple[str, int]], int] = {}
    kinds = []
    for each in facts:
        key = frozenset((name, value) for name, value in each.items() if _is_name(struct, name))
        if key not in numbers:
            lines = write_model_inputs(struct, cost.problem_numbers, dict(key))
            if lines not in functions:
                functions.append(lines)
            numbers[key] = functions.index(lines)
        kinds.append(numbers[key])
    return functions, kinds


def _is_name(struct: ProblemStruct, variable: str) -> bool:
    """Whether a C variable is a field that takes names, or the number of dimensions: what formulas differ by."""
    member = struct.members.get(variable.removeprefix("p->"))
    return bool(member.names) if member is not None else variable.endswith(".count")


def _select_bundles(op: Op, arch: Arch, given: Sequence[Bundle] | None) -> list[Bundle]:
    """The bundles of an op and a GPU, in the order in which they are tried."""
    from tilewright.select.bundle import load_builtin_bundles  # noqa: PLC0415  (a bundle that is there imports NumPy)

    try:
        bundles = load_builtin_bundles(op) if given is None else given
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"kernels of {op.name} are ranked by learned models, and reading them needs {error.name}. Get it with: "
            "pip install 'tilewright[select]'"
        ) from error
    return [bundle for bundle in bundles if bundle.op == op.name and arch.name in bundle.archs]


@dataclass(frozen=True)
class _BundleConditions:
    """The problem conditions of bundles: C checks fields of the arguments, a bit mask has the fields of the kernels."""

    in_c: CModelInputs
    bundles: Sequence[Bundle]

    def format_condition(self, bundle: Bundle) -> str:
        """A C condition that is true for arguments that the bundle supports."""
        parts = []
        for name, values in bundle.where.items():
            if self.in_c.has_member(name):
                each = [f"({self.in_c.format_condition(name, value)})" for value in values]
                parts.append(each[0] if len(each) == 1 else f"({' || '.join(each) or '0'})")
        return " && ".join(parts) or "1"

    def compute_mask(self, kernel: Kernel) -> int:
        """A bit mask of the bundles that match a kernel's own fields."""
        return sum(
            1 << number for number, bundle in enumerate(self.bundles) if self._has_matching_fields(kernel, bundle)
        )

    def _has_matching_fields(self, kernel: Kernel, bundle: Bundle) -> bool:
        own = {name: values for name, values in bundle.where.items() if not self.in_c.has_member(name)}
        for name in own:
            if not hasattr(kernel.config, name):
                raise BundleError(
                    f"the bundle {bundle.name} cannot be part of a pack: it depends on the problem field {name}, which "
                    f"neither the arguments nor the kernels of {kernel.op} have in C"
                )
        return bundle.covers(kernel.config) and all(getattr(kernel.config, n) in values for n, values in own.items())


def _build_c_bundle(bundle: Bundle, condition: str) -> _CBundle:
    from tilewright.select.bundle import RELEVANCE  # noqa: PLC0415

    forests = [_build_c_forest(forest) for forest in bundle.forests]
    return _CBundle(bundle.name, bundle.digest, bundle.transform == RELEVANCE, condition, forests)


def _build_c_forest(forest: Forest) -> _CForest:
    """Trees as tables: the nodes of each tree, then its leaves."""
    nodes: list[str] = []
    roots: list[int] = []
    for tree in forest.iterate_trees():
        inner = len(tree.feature)
        _require_small("nodes and leaves of a tree", 2 * inner + 1, _MOST)
        roots.append(len(nodes))
        for threshold, feature, left, right in zip(tree.threshold, tree.feature, tree.left, tree.right, strict=True):
            children = [int(child) if child >= 0 else inner - 1 - int(child) for child in (left, right)]
            nodes.append(f"{{{format_constant(threshold)}, {feature}, {{{children[0]}, {children[1]}}}}}")
        nodes += [f"{{{format_constant(value)}, 0, {{{inner + i}, {inner + i}}}}}" for i, value in enumerate(tree.leaf)]
    return _CForest(_wrap_items(nodes), _wrap_items(map(str, roots)), _wrap_items(map(str, forest.depth)), forest.trees)


def _wrap_items(items: Iterable[str], width: int = 116) -> list[str]:
    """Wrap the elements of a table into lines."""

    def generate_lines() -> Iterator[str]:
        line = ""
        for item in items:
            if line and len(line) + len(item) + 2 > width:
                yield line
                line = ""
            line += f"{' ' if line else ''}{item},"
        yield line

    return list(generate_lines())


def _check_member_names(names: Iterable[str]) -> list[str]:
    """Require names that are valid for struct members."""
    listed = list(names)
    for name in listed:
        if not _IDENTIFIER.fullmatch(name) or name in _C_WORDS or keyword.iskeyword(name):
            raise InvalidValueError(f"{name!r} cannot name a model input: it must be an identifier in Python and C")
    return listed


def _require_small(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidValueError(f"{count:,} {what} are too many for the C tables, which hold {most:,}")


@functools.cache
def _load_templates() -> jinja2.Environment:
    return load_templates(_HERE)
