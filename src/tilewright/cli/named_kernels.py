"""Kernels named on a command line: an op, a set, a kernel-set file, or a kernel by its name or digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.completion import complete_ops
from tilewright.cli.gpu_option import LATE, find_default_gpu, make_gpu_option
from tilewright.cli.kernel_choice import DECLARED, apply_settings, make_set
from tilewright.cli.settings import (
    change_config,
    make_declared_config,
    make_declared_space,
    make_setting_option,
    read_settings,
)

if TYPE_CHECKING:
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.ops.op import Op

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class NamedKernels:
    """The kernels that one argument names: one kernel, the members of a set, or an op, which -s completes."""

    text: str
    op: Op
    kernel_set: KernelSet | None = None
    kernel: Kernel | None = None

    @property
    def is_op(self) -> bool:
        return self.kernel_set is None and self.kernel is None

    def list_kernels(self, settings: Sequence[str], arch: str) -> Iterable[Kernel]:
        """The legal kernels for a GPU, or the one kernel, changed by settings."""
        if self.kernel is not None:
            kernel = change_kernel(self.op, self.kernel, settings)
            if kernel.arch != arch:
                raise InvalidValueError(f"{kernel.slug} is a kernel for {kernel.arch}, but the GPU is {arch}")
            return [kernel]
        if self.kernel_set is not None:
            return apply_settings(self.op, self.kernel_set, settings).kernels(arch)
        return make_set(self.op, DECLARED, make_declared_space(self.op, settings)).kernels(arch)


def add_subject_options(command: F) -> F:
    """Add SUBJECT, --gpu and -s, which name one kernel."""
    for decorate in reversed(
        (
            click.argument("subject", metavar="OP|KERNEL", shell_complete=complete_ops),
            make_gpu_option("arch", "The GPU. It is required for an op; a kernel name contains it.", default=LATE),
            make_setting_option("VALUE", "Set a field of the config. May be repeated."),
        )
    ):
        command = decorate(command)
    return command


def resolve_kernel(subject: str, arch: str | None, texts: Iterable[str]) -> Kernel:
    """The kernel of a name or digest, or of an op with settings. Settings change fields of a named kernel."""
    from tilewright import arch as gpus

    named = resolve_subject(subject)
    if named.kernel_set is not None:
        raise InvalidValueError(
            f"{subject} is a set of kernels, and this command takes one kernel. `tilewright sets {subject}` lists them."
        )
    if named.kernel is not None:
        gpus.load(arch or named.kernel.arch)  # report an unknown GPU before any other error
        return change_kernel(named.op, named.kernel, texts, arch)
    arch = arch or find_default_gpu()
    if arch is None:
        raise InvalidValueError(explain_no_gpu(subject))
    config = make_declared_config(named.op, read_settings(texts))
    gpus.load(arch)
    return named.op.make_kernel(config, arch)


def explain_no_gpu(subject: str) -> str:
    """The message if a command needs a GPU for an op or a set."""
    from tilewright import arch as gpus

    return f"no GPU is given for {subject}: use --gpu GPU. Known: {', '.join(gpus.arch_names())}."


def change_kernel(op: Op, kernel: Kernel, texts: Iterable[str], arch: str | None = None) -> Kernel:
    """A kernel with other values for the fields that settings name, or for another GPU."""
    settings = read_settings(texts)
    if not settings and arch in (None, kernel.arch):
        return kernel
    return op.make_kernel(change_config(op, kernel.config, settings), arch or kernel.arch)


def find_named_kernels(
    subjects: Sequence[NamedKernels], settings: Sequence[str], arch: str, limit: int | None
) -> list[Kernel]:
    """The kernels for a GPU, each once, in the order of the arguments. An error if there are none."""
    chosen: dict[Kernel, None] = {}
    for kernel in _iterate_kernels(subjects, settings, arch):
        if limit is not None and len(chosen) == limit:
            break
        chosen[kernel] = None
    if not chosen:
        raise InvalidValueError(
            f"none of these kernels is legal on {arch}: {', '.join(each.text for each in subjects)}"
        )
    return list(chosen)


def _iterate_kernels(subjects: Sequence[NamedKernels], settings: Sequence[str], arch: str) -> Iterator[Kernel]:
    for subject in subjects:
        yield from subject.list_kernels(settings, arch)


def resolve_subjects(texts: Iterable[str]) -> list[NamedKernels]:
    """The meaning of each argument."""
    return [resolve_subject(text) for text in texts]


def resolve_subject(text: str) -> NamedKernels:
    """The meaning of an argument. `UnknownValueError` if it is neither an op nor a set nor a kernel."""
    from tilewright.ops import find_op
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.registry.kernel_names import find_named

    found = find_named(text)
    if isinstance(found, Kernel):
        return NamedKernels(text, find_op(found.op), None, found)
    if isinstance(found, KernelSet):
        return NamedKernels(text, find_op(found.op), found)
    return NamedKernels(text, found)
