"""The arguments by which `generate`, `build`, `select` and `portfolio` choose kernels of one op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.errors import IllegalConfigError, InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.cli.defaults import complete_fields
from tilewright.cli.filters import resolve_filters
from tilewright.cli.gpu_option import find_default_gpu
from tilewright.cli.kernel_choice import (
    apply_settings,
    choose_bounded_kernels,
    choose_kernels,
    find_profile,
    find_sets,
    read_tile_engine_set,
    resolve_profile_name,
)
from tilewright.cli.named_kernels import NamedKernels, change_kernel, explain_no_gpu, resolve_subjects
from tilewright.cli.no_kernels import explain_no_kernels

if TYPE_CHECKING:
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.ops.op import Op, Profile


@dataclass(frozen=True)
class KernelArguments:
    """Kernels of one op: the named ones, or an op with a set, a file, a profile or settings. `wanted` filters them."""

    subjects: Sequence[NamedKernels]
    preselected: str | None
    kernel_set: Path | None
    profile: str | None
    settings: tuple[str, ...]
    wanted: Mapping[str, tuple[str, ...]]
    tile_engine: Path | None = None

    @property
    def op(self) -> Op:
        return self.subjects[0].op

    @property
    def is_op(self) -> bool:
        """Whether the argument is an op, so that options choose its kernels."""
        return self.subjects[0].is_op

    @property
    def names_kernels(self) -> bool:
        """Whether there is more than an op: sets, kernels, or options that name kernels."""
        options = (self.preselected, self.kernel_set, self.tile_engine, self.profile, self.settings)
        return not self.is_op or any(options)

    def resolve_gpus(self, given: Sequence[str]) -> list[str]:
        """The GPUs of --gpu, else those in the names of the kernels, else the project's default."""
        from tilewright import arch as archs

        named = [each.kernel.arch for each in self.subjects if each.kernel is not None]
        gpus = list(dict.fromkeys(given))
        if not gpus and len(named) == len(self.subjects):
            return list(dict.fromkeys(named))
        if not gpus:
            default = find_default_gpu()
            if default is None:
                raise InvalidValueError(explain_no_gpu(", ".join(each.text for each in self.subjects)))
            gpus = [default]
        for gpu in gpus:
            archs.load(gpu)
        for each in self.subjects:
            if each.kernel is not None and each.kernel.arch not in gpus:
                raise InvalidValueError(
                    f"{each.kernel.slug} is a kernel for {each.kernel.arch}, but the GPU is {', '.join(gpus)}"
                )
        return gpus

    def resolve_gpu(self, given: str | None) -> str:
        """The GPU of a command that takes one."""
        gpus = self.resolve_gpus(() if given is None else (given,))
        if len(gpus) > 1:
            raise InvalidValueError(f"the kernels are for {' and '.join(gpus)}: name kernels for one GPU")
        return gpus[0]

    def choose_kernels(self, gpu: str, limit: int | None = None, *, bounded: bool = False) -> dict[Kernel, str]:
        """The kernels for a GPU, each with its set. An error if there are none, or too many to build (`bounded`)."""
        profile = find_profile(self.op, self.profile)
        sets = self._find_sets(gpu, profile)
        choose = choose_bounded_kernels if bounded else choose_kernels
        chosen = choose(self.op, gpu, sets, self.wanted, limit, profile)
        if not chosen:
            raise InvalidValueError(explain_no_kernels(self.op, gpu, sets, self.wanted, profile, self.profile))
        return chosen

    def _find_sets(self, gpu: str, profile: Profile | None) -> Sequence[KernelSet]:
        if self.tile_engine is not None:
            return [read_tile_engine_set(self.op, self.tile_engine, self.settings, self.wanted)]
        if self.is_op:
            return find_sets(self.op, gpu, self.preselected, self.kernel_set, profile, self.settings)
        named = (self._make_set(each, gpu) for each in self.subjects)
        return [found for found in named if found is not None]

    def _make_set(self, named: NamedKernels, gpu: str) -> KernelSet | None:
        """A set of the named kernels; None if it is a kernel for another GPU."""
        from tilewright.ops.builtin_sets import make_explicit_set

        if named.kernel_set is not None:
            return apply_settings(self.op, named.kernel_set, self.settings)
        assert named.kernel is not None
        if named.kernel.arch != gpu:
            return None
        kernel = change_kernel(self.op, named.kernel, self.settings)
        _check_legal(self.op, kernel)
        return make_explicit_set(self.op, gpu, kernel.digest, "", [kernel])


def read_kernel_arguments(
    ctx: click.Context,
    texts: Sequence[str],
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    given: Sequence[str] = (),
    tile_engine: Path | None = None,
) -> KernelArguments:
    """Check that the arguments name kernels of one op, and in one way. A `given` field has no default."""
    subjects = resolve_subjects(texts)
    ops = list(dict.fromkeys(each.op.name for each in subjects))
    if len(ops) > 1:
        raise InvalidValueError(f"the kernels are of {' and '.join(ops)}: name kernels of one op")
    alone = [each.text for each in subjects if each.is_op]
    if alone and len(subjects) > 1:
        raise InvalidValueError(f"{alone[0]} is an op: give it alone, or only names of its sets and kernels")
    sources = {"--preselected": preselected, "--kernel-set": kernel_set, "--tile-engine": tile_engine}
    named = [option for option, value in sources.items() if value is not None]
    if len(named) > 1:
        raise InvalidValueError(f"{' and '.join(named)} exclude each other: give one of them")
    if named and not alone:
        option = named[0]
        raise InvalidValueError(f"{texts[0]} and {option} both name kernels: give one of them, or {option} with an op")
    op = subjects[0].op
    wanted = resolve_filters(op, ctx.command, filters)
    if alone and not (preselected or kernel_set or settings):
        wanted |= {name: (value,) for name, value in complete_fields(op, [*given, *wanted]).items()}
    resolved = resolve_profile_name(op, profile)
    if resolved != profile:
        emit(Notice(f"receipt {profile} is the profile {resolved}"))
    return KernelArguments(subjects, preselected, kernel_set, resolved, settings, wanted, tile_engine)


def read_arguments_by_op(
    ctx: click.Context,
    texts: Sequence[str],
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    tile_engine: Path | None = None,
) -> list[KernelArguments]:
    """The arguments of each op, for a command that takes sets and kernels of several. Options are for one op only."""
    subjects = resolve_subjects(texts)
    by_op: dict[str, list[str]] = {}
    for each in subjects:
        by_op.setdefault(each.op.name, []).append(each.text)
    alone = [each.text for each in subjects if each.is_op]
    if alone and len(by_op) > 1:
        raise InvalidValueError(f"{alone[0]} is an op: give it alone, or only names of its sets and kernels")
    options = {"--profile": profile, "-s": settings, "--tile-engine": tile_engine, "a filter": any(filters.values())}
    used = [name for name, value in options.items() if value]
    if len(by_op) > 1 and used:
        raise InvalidValueError(f"the kernels are of {' and '.join(by_op)}, but {used[0]} is for kernels of one op")
    return [
        read_kernel_arguments(ctx, own, filters, preselected, kernel_set, profile, settings, tile_engine=tile_engine)
        for own in by_op.values()
    ]


def _check_legal(op: Op, kernel: Kernel) -> None:
    """Raise an error if a named kernel is illegal: a set would omit it without a message."""
    from tilewright import arch as archs
    from tilewright.ops.rule import find_violations

    broken = find_violations(op.rules, kernel.config, archs.load(kernel.arch))
    if broken:
        raise IllegalConfigError(
            f"{kernel.slug} is illegal: {broken[0]}. `tilewright check {kernel.slug}` explains it."
        )
