"""The interface of an op to the rest of Tilewright: one value that holds all its parts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_GENERATION, CkProbe, make_generation_api
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.cost import CostModel
from tilewright.ops.execution import Execution
from tilewright.ops.fields import ConfigBase, list_fields, read_config, read_tokens
from tilewright.ops.kernel import Kernel
from tilewright.ops.kind import Kind, index_kinds
from tilewright.ops.measurement_files import MeasurementReader
from tilewright.ops.rule import Rule

if TYPE_CHECKING:
    from tilewright.ops.aiter_table import TableFamily
    from tilewright.ops.portfolio import KernelPortfolio

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Shorthand:
    """One name for several fields: `row` maps a value to the values of `fields`, or raises.

    `stars`, if given, returns the values that "*" stands for on a GPU. `normalize` returns the text of a value.
    """

    fields: tuple[str, ...]
    row: Callable[[str], tuple[Any, ...]]
    stars: Callable[[Arch], tuple[str, ...]] | None = None
    normalize: Callable[[object], str] = str

    def expand_value(self, value: object) -> dict[str, Any]:
        """The fields that a value stands for, with their values."""
        return dict(zip(self.fields, self.row(self.normalize(value)), strict=True))


@dataclass(frozen=True)
class Profile:
    """The kernels that an integration needs: those for which `wants(config, arch)` holds.

    `space` names the op's space of a few hundred such kernels, from which commands choose if you name no set. `aliases`
    are the numbers of the profile in CK's generators.
    """

    doc: str
    wants: Callable[[Any, Arch], bool]
    space: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class OtherModelInputs:
    """The inputs of another tool's trained models, for kernels of this op: `compute(config, problem, gpu)` returns them
    by name, or raises `InvalidValueError`. `kinds` are parts of the models' names: part → kind of kernel.
    """

    compute: Callable[..., Mapping[str, float]]
    kinds: Mapping[str, str]


def _no_entries() -> Mapping[str, Any]:
    return {}


def _no_strata(arch: Arch) -> Mapping[tuple[str, ...], list[tuple[Any, ...]]]:  # noqa: ARG001
    return {}


@dataclass(frozen=True, repr=False, kw_only=True)
class Op:
    """An operation and everything Tilewright must know about it.

    `kinds` are its sorts of kernels, and `kind_field` the config field with the name of a config's kind; an op with one
    kind needs none. `rules` take (config, arch); `fit_rules` take (config, problem, arch). `stars` lists, for a field
    given as "*", all values worth trying on a GPU. `structure_fields` names the fields that change a kernel's
    structure; `strata` lists all fields that distinguish kernels, with their values. `headers` are the includes of all
    rendered sources, `support` those of them that are Tilewright's own (name → file, or text); `launchers` are further
    files of Tilewright, each for some kinds only. `ck_probes` recognise the generations of CK Tile that its sources
    support: the template gets their forms as `ck`, and files get them as macros of `tilewright_ck_api.hpp`. `sets` and
    `spaces` are the op's built-in kernel sets and spaces, by name; `importers` read files of other tools as spaces.
    `execution` defines how kernels are called and checked; without it they can be built but not run. `problem_readers`
    read files of other tools as lists of problems, by format name, `measurement_readers` as times of its kernels.
    `aiter_tables` are the families of aiter's tables that list its problems.
    `filters` are additional words by which commands select kernels, next to fields and shorthands: word → field,
    shorthand or property of the config. `profiles` select kernels by purpose, from their own space, else from the space
    `default` if the op has one. `report_fields` are the fields whose values reports compare, by the word for them: word
    → field; without them, reports compare whole kernels. `cost` estimates kernel times; without it kernels are selected
    in the order of registration. `portfolio` has the kernels from which the op's functions for arrays select.
    `other_models` describes the trained models of another tool, whose ranking can be compared with the estimate's.
    """

    name: str
    doc: str
    config_type: type[ConfigBase]
    problem_type: type
    kinds: tuple[Kind, ...]
    kind_field: str = ""
    example: Mapping[str, Any]
    example_problem: Mapping[str, Any]
    rules: tuple[Rule, ...] = ()
    fit_rules: tuple[Rule, ...] = ()
    stars: Mapping[str, Callable[[Arch], tuple[Any, ...]]] = field(default_factory=dict)
    structure_fields: tuple[str, ...] = ()
    strata: Callable[[Arch], Mapping[tuple[str, ...], list[tuple[Any, ...]]]] = _no_strata
    shorthands: Mapping[str, Shorthand] = field(default_factory=dict)
    template: Path
    headers: tuple[str, ...]
    support: Mapping[str, Path | str]
    launchers: Mapping[str, Path] = field(default_factory=dict)
    ck_probes: tuple[CkProbe, ...] = ()
    sets: Callable[[], Mapping[str, Any]] = _no_entries
    spaces: Callable[[], Mapping[str, Any]] = _no_entries
    importers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    execution: Execution | None = None
    problem_readers: Mapping[str, Callable[[Path], list[Any]]] = field(default_factory=dict)
    measurement_readers: Mapping[str, MeasurementReader] = field(default_factory=dict)
    aiter_tables: tuple[TableFamily, ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    report_fields: Mapping[str, str] = field(default_factory=dict)
    cost: CostModel | None = None
    portfolio: KernelPortfolio | None = None
    other_models: OtherModelInputs | None = None

    def __repr__(self) -> str:
        return f"Op({self.name!r})"

    @functools.cached_property
    def _kinds_by_name(self) -> Mapping[str, Kind]:
        return index_kinds(self.kinds)

    def kind(self, config: object) -> Kind:
        """The kind of a config's kernels."""
        return self._kinds_by_name[getattr(config, self.kind_field)] if self.kind_field else self.kinds[0]

    def make_config(self, **values: object) -> ConfigBase:
        """A config of this op. Unknown fields and invalid values are errors."""
        return read_config(self.config_type, values)

    def expand_shorthands(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replace shorthands by the fields that they stand for. A value given for a field itself takes precedence."""
        short: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for name, value in values.items():
            if name in self.shorthands:
                short |= self.shorthands[name].expand_value(value)
            else:
                fields[name] = value
        return {**short, **fields}

    def make_kernel(self, config: ConfigBase, arch: str) -> Kernel:
        """The kernel of a config on a GPU, legal or not."""
        return Kernel(self.name, config, arch)

    def make_example(self, overrides: Mapping[str, Any] | None = None) -> ConfigBase:
        """The op's example config with some fields changed. Rule examples are such changes."""
        return read_config(self.config_type, {**self.example, **(overrides or {})})

    def load_example_arch(self, rule: Rule) -> Arch:
        """The GPU of a rule's examples, with a generation of CK Tile that has the rule."""
        return archs.load(rule.arch, make_generation_api(rule.since or DEFAULT_GENERATION, self.ck_probes))

    def parse_tokens(self, arch: str, tokens: list[str], digest: str) -> Kernel:
        """The kernel that the parts of a name describe. The digest must match."""
        kernel = Kernel(self.name, read_config(self.config_type, read_tokens(self.config_type, tokens)), arch)
        if kernel.digest != digest:
            raise InvalidValueError(
                f"the name's digest is {digest}, but the digest of its fields is {kernel.digest}: "
                f"the kernel that it describes is {kernel.slug}"
            )
        return kernel

    def list_candidates(self, name: str, arch: Arch) -> tuple[Any, ...]:
        """All values of a field worth trying on a GPU: the meaning of "*". Empty if values must be listed."""
        if name in self.stars:
            return self.stars[name](arch)
        return tuple(getattr(list_fields(self.config_type)[name].kind, "values", ()))

    def add_keywords(self, function: F) -> F:
        """Decorate a function that takes fields and shorthands as keywords, so that `help` and notebooks show them."""
        names = (*self.field_names, *self.shorthands)
        keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in names]
        function.__dict__["__signature__"] = inspect.signature(function).replace(parameters=keywords)
        return function

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(list_fields(self.config_type))
