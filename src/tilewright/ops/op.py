"""What an op is to the rest of Tilewright: one value that joins its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.execution import Execution
from tilewright.ops.fields import ConfigBase, fields_of, read_config, read_tokens
from tilewright.ops.kernel import Kernel
from tilewright.ops.machine.cost import CostModel
from tilewright.ops.measured import MeasurementReader
from tilewright.ops.rule import Rule

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Shorthand:
    """One word for several fields: `row` turns a value of it into the values of `fields`, or raises.

    `stars` gives the values that "*" stands for on a GPU, where it may be written.
    """

    fields: tuple[str, ...]
    row: Callable[[str], tuple[Any, ...]]
    stars: Callable[[Arch], tuple[str, ...]] | None = None

    def written_out(self, value: str) -> dict[str, Any]:
        """The fields that a value stands for, with theirs."""
        return dict(zip(self.fields, self.row(value), strict=True))


@dataclass(frozen=True)
class Profile:
    """The kernels that an integration needs: those for which `wants(config, arch)` holds."""

    doc: str
    wants: Callable[[Any, Arch], bool]


def _no_launchers(config: Any) -> tuple[str, ...]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, repr=False)
class Op:
    """An operation and everything Tilewright must know about it.

    `rules` take (config, arch); `fit_rules` take (config, problem, arch). `stars` gives, for a field written as
    "*", all values worth trying on a GPU; `oddities` adds values that only tests want. `kinds` names the fields
    that change a kernel's structure; `strata` gives all fields that tell kernels apart, with their values.
    `context` gives the template's variables, `headers` what all rendered sources include, `support` those of them
    that are our own files. `sets` and `spaces` are the kernel sets and the spaces that come with the op, by name;
    `importers` read files of other tools as spaces. `execution` tells how kernels are called and checked; without
    it they can be built but not run. `problem_readers` read files of other tools as lists of problems, by the name
    of the format, `measurement_readers` as times of its kernels. `launchers` are further files of our own, each for
    some kernels only: `launchers_of` names those that a config's source includes, after `headers`. `filters` gives
    words by which commands choose kernels, beside the fields and shorthands: word → field, shorthand or property of
    the config. `profiles` choose them by what they are needed for; the space `default`, if the op has one, is what
    they choose from. `cost` estimates how long kernels take; without it they are chosen in the order of
    registration.
    """

    name: str
    doc: str
    config_type: type[ConfigBase]
    problem_type: type
    example: Mapping[str, Any]
    example_problem: Mapping[str, Any]
    rules: tuple[Rule, ...]
    fit_rules: tuple[Rule, ...]
    stars: Mapping[str, Callable[[Arch], tuple[Any, ...]]]
    oddities: Mapping[str, tuple[Any, ...]]
    kinds: tuple[str, ...]
    strata: Callable[[Arch], Mapping[tuple[str, ...], list[tuple[Any, ...]]]]
    shorthands: Mapping[str, Shorthand]
    template: Path
    context: Callable[[Kernel], Mapping[str, Any]]
    headers: tuple[str, ...]
    support: Mapping[str, Path]
    lds_bytes: Callable[[Any, Arch], int]
    # The matrix instruction of each GEMM of a config's kernels, all of which their code must contain and no other;
    # empty text for a GEMM that the GPU has no instruction for.
    matrix_instructions: Callable[[Any, Arch], tuple[str, ...]]
    # Whether a config's kernel compiles fast enough to be one of many in a sample.
    is_small: Callable[[Any], bool]
    sets: Callable[[], Mapping[str, Any]]
    spaces: Callable[[], Mapping[str, Any]]
    importers: Mapping[str, Callable[..., Any]]
    execution: Execution | None = None
    problem_readers: Mapping[str, Callable[[Path], list[Any]]] = field(default_factory=dict)
    measurement_readers: Mapping[str, MeasurementReader] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    launchers: Mapping[str, Path] = field(default_factory=dict)
    launchers_of: Callable[[Any], tuple[str, ...]] = _no_launchers
    cost: CostModel | None = None

    def __repr__(self) -> str:
        return f"Op({self.name!r})"

    def config(self, **values: Any) -> ConfigBase:
        """A config of this op; unknown fields and impossible values are errors."""
        return read_config(self.config_type, values)

    def written_out(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of fields and shorthands as those of fields alone. What a field is given itself counts."""
        short: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for name, value in values.items():
            if name in self.shorthands:
                short |= self.shorthands[name].written_out(value)
            else:
                fields[name] = value
        return {**short, **fields}

    def kernel(self, config: ConfigBase, arch: str) -> Kernel:
        """The kernel of a config on a GPU, legal or not."""
        return Kernel(self.name, config, arch)

    def example_config(self, overrides: Mapping[str, Any] | None = None) -> ConfigBase:
        """The op's example config with some fields changed: what rule examples are written in."""
        return read_config(self.config_type, {**self.example, **(overrides or {})})

    def parse_tokens(self, arch: str, tokens: list[str], digest: str) -> Kernel:
        """The kernel that a name's parts describe; the digest must agree with them."""
        kernel = Kernel(self.name, read_config(self.config_type, read_tokens(self.config_type, tokens)), arch)
        if kernel.digest != digest:
            raise InvalidValueError(
                f"the name's digest is {digest}, but its fields make {kernel.digest}: "
                f"the kernel it describes is {kernel.slug}"
            )
        return kernel

    def candidates(self, name: str, arch: Arch) -> tuple[Any, ...]:
        """All values of a field worth trying on a GPU: what "*" stands for. Empty where they must be listed."""
        if name in self.stars:
            return self.stars[name](arch)
        return tuple(getattr(fields_of(self.config_type)[name].kind, "values", ()))

    def gives_keywords(self, function: F) -> F:
        """Decorates a function that takes fields and shorthands as keywords: `help` and notebooks then name them."""
        names = (*self.field_names, *self.shorthands)
        keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in names]
        function.__dict__["__signature__"] = inspect.signature(function).replace(parameters=keywords)
        return function

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(fields_of(self.config_type))
