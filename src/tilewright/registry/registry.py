"""The registry: kernels, their build results, and running them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.arch.spec import Arch
from tilewright.base.atomic_write import write_text
from tilewright.base.documents import CONTENT_ERRORS, convert_read_errors, describe_error, read_json
from tilewright.base.errors import CompileError, InvalidValueError, choose
from tilewright.base.short_text import MOST_ROWS, format_html_table
from tilewright.base.user_progress import report_progress
from tilewright.building.build_progress import build_trace
from tilewright.building.builder import LIMIT_S, BuildResult, build_kernels
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.dispatch.dispatcher import Dispatcher, resolve_device
from tilewright.dispatch.fast_path import FastPath
from tilewright.dispatch.plan import Plan
from tilewright.ops.kernel import Kernel
from tilewright.ops.space import MOST_KERNELS
from tilewright.registry.document import SavedKernel, read_document, to_document
from tilewright.registry.member_texts import CELLS, describe_members, list_cells
from tilewright.registry.members import (
    Kernels,
    check_side,
    find_kernels,
    merge_priorities,
    merge_results,
    resolve_kernels,
)
from tilewright.select.bundle import read_bundle
from tilewright.select.chain import CHAIN, Chain
from tilewright.select.selection import KernelArg, Selection, Selector
from tilewright.select.tuned import TunedTable, read_tuned

if TYPE_CHECKING:
    from tilewright.dispatch.launch import BoundKernel, CallSequence
    from tilewright.runtime.device import Device
    from tilewright.runtime.forwarded_hip import ForwardedLibrary


@dataclass(frozen=True, repr=False)
class Registry:
    """Kernels and their build results. Registries are immutable: building, filtering and loading return new ones.

    `results` has an artifact or a failure for each kernel; a kernel without one is not built yet. `priorities` has
    those that were set; the default is 0. `selector` ranks the kernels that support a problem.
    """

    kernels: tuple[Kernel, ...]
    results: Mapping[Kernel, Artifact | Failure] = field(default_factory=dict)
    built: BuildResult | None = field(default=None, compare=False, repr=False)  # the last build, for its statistics
    priorities: Mapping[Kernel, int] = field(default_factory=dict)
    selector: Selector = field(default=CHAIN, compare=False, repr=False)
    # Plans and loaded libraries: caches that are derived from the other fields.
    _dispatcher: Dispatcher = field(init=False, compare=False, repr=False)
    _fast_paths: dict[int, FastPath] = field(init=False, compare=False, repr=False)  # shared with the dispatcher
    _plans: dict[Any, tuple[Plan, Any]] = field(init=False, compare=False, repr=False)  # likewise

    def __post_init__(self) -> None:
        made = Dispatcher(self.kernels, self.results, self.priorities, self.selector)
        object.__setattr__(self, "_dispatcher", made)
        object.__setattr__(self, "_fast_paths", made.fast_paths)
        object.__setattr__(self, "_plans", made.plans)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has its own plans: they belong to the libraries of one process."""
        return Registry, (self.kernels, self.results, self.built, self.priorities, self.selector)

    @classmethod
    def of(cls, kernels: Kernels, arch: str | Sequence[str] | None = None) -> Registry:
        """A registry of spaces, sets, configs or kernels; nothing is built yet."""
        return cls(resolve_kernels(kernels, arch))

    @property
    def artifacts(self) -> dict[Kernel, Artifact]:
        """The kernels that are built."""
        return {k: entry for k in self.kernels if isinstance(entry := self.results.get(k), Artifact)}

    @property
    def failures(self) -> dict[Kernel, Failure]:
        """The kernels that failed to compile, with the compiler's log."""
        return {k: entry for k in self.kernels if isinstance(entry := self.results.get(k), Failure)}

    def __repr__(self) -> str:
        return f"Registry({describe_members(self.kernels, self.results)})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        caption = f"Registry: {describe_members(self.kernels, self.results)}"
        rows = [list_cells(kernel, self.results.get(kernel)) for kernel in self.kernels[:MOST_ROWS]]
        return format_html_table(caption, CELLS, rows, len(self.kernels))

    def __len__(self) -> int:
        return len(self.kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __contains__(self, kernel: object) -> bool:
        return kernel in self.kernels

    def build(
        self,
        max_workers: int | None = None,
        *,
        tiers: Tiers | None = None,
        limit_s: float = LIMIT_S,
        retry: bool = False,
        trace: Path | str | None = None,
    ) -> Registry:
        """Build all kernels that are not built: take them from the store, or run up to `max_workers` compilers.

        A kernel that fails does not stop the others: see `failures`. `trace` writes a Chrome/Perfetto trace of the
        build.
        """
        wanted = [k for k in self.kernels if not isinstance(self.results.get(k), Artifact)]
        built = build_kernels(wanted, jobs=max_workers, tiers=tiers, limit_s=limit_s, retry=retry)
        if trace is not None:
            write_text(Path(trace), json.dumps(build_trace(built.spans, built.units)))
        return replace(self, results={**self.results, **built.results}, built=built)

    def find(self, **wanted: Any) -> Registry:
        """The kernels that have these values: `find(arch="gfx942", pipeline=["mem", "compv3"], built=True)`.

        Criteria are `op`, `arch`, `built`, `name` (a pattern: `"*-compv3-*"`), and fields and shorthands of the op. A
        list means any of its values.
        """
        kept = find_kernels(self.kernels, self.results, wanted)
        results = {k: self.results[k] for k in kept if k in self.results}
        return replace(
            self, kernels=kept, results=results, built=None, priorities=_filter_priorities(self.priorities, kept)
        )

    def with_priority(self, which: Kernel | str | Registry, number: int) -> Registry:
        """A copy with a new priority for a kernel, its name, or all kernels of a registry. The default is 0."""
        if type(number) is not int:
            raise InvalidValueError(f"a priority must be an integer, got {number!r}")
        named = which.kernels if isinstance(which, Registry) else (which,)
        chosen = [self.kernel(each if isinstance(each, str) else each.slug) for each in named]
        return replace(self, priorities={**self.priorities, **dict.fromkeys(chosen, number)})

    def with_tuned(self, table: TunedTable | Path | str) -> Registry:
        """A copy with a table (or its file) of the fastest measured kernels: they rank first for exactly these
        problems."""
        if not isinstance(self.selector, Chain):
            raise InvalidValueError(
                f"tuned tables work with the selector Chain only, and this registry has {self.selector!r}"
            )
        read = table if isinstance(table, TunedTable) else read_tuned(Path(table))
        return replace(self, selector=replace(self.selector, tuned=read))

    def with_bundles(self, *folders: Path | str) -> Registry:
        """A copy with these learned models instead of those of the ops; without arguments, with no learned models."""
        if not isinstance(self.selector, Chain):
            raise InvalidValueError(
                f"bundles work with the selector Chain only, and this registry has {self.selector!r}"
            )
        bundles = tuple(read_bundle(Path(folder)) for folder in folders)
        return replace(self, selector=replace(self.selector, bundles=bundles))

    def merge(self, other: Registry, prefer: str | None = None) -> Registry:
        """The kernels of both, in the order of this registry, then of the other.

        If only one side has an artifact of a kernel, it is kept. If both sides have different keys (another compiler,
        other headers) or different priorities, `prefer` selects the side, "mine" or "theirs"; without it the conflict
        is an error.
        """
        side = check_side(prefer)
        return replace(
            self,
            kernels=tuple(dict.fromkeys((*self.kernels, *other.kernels))),
            results=merge_results(self.results, other.results, side),
            built=None,
            priorities=merge_priorities(self.priorities, other.priorities, side),
        )

    def kernel(self, slug: str) -> Kernel:
        """The kernel with this name; the error for an unknown one suggests the nearest."""
        known = {k.slug: k for k in self.kernels}
        return known[choose("kernel of this registry", slug, known)]

    def artifact(self, kernel: Kernel) -> Artifact:
        """The artifact of a kernel; `CompileError` with the log if it failed to compile."""
        entry = self.results.get(kernel)
        if isinstance(entry, Artifact):
            return entry
        if entry is None:
            raise InvalidValueError(f"{kernel.slug} is not built: call build() first")
        errors = entry.facts.get("errors") or ["no error was named"]
        raise CompileError(f"{kernel.slug} was not built: {errors[0]}", entry.log)

    def library(self, kernel: Kernel, device: Device | str | None = None) -> ctypes.CDLL | ForwardedLibrary:
        """The shared library of a built kernel, checked, and loaded on top of a device's HIP library."""
        return resolve_device(device).library(self.artifact(kernel).verify_file(LIBRARY))

    def select(
        self,
        problem: Any,
        device: Device | Arch | str | None = None,
        *,
        kernel: KernelArg = None,
        pad: bool = False,
        built: bool = True,
    ) -> Selection:
        """The kernels that support a problem, best first, and the others with the reasons for rejection.

        `device` may also be a GPU or its name. Default: the current device, else the only GPU that the registry has
        kernels for. With `pad`, kernels that support only a padded problem are listed after those that support this
        one. With `built=False`, kernels that are not built yet are included.

        A problem that needs several kernels has a selection for each in `stages`. `kernel` may then be several
        kernels: each is used for the stage that it supports.
        """
        return self._dispatcher.select(problem, device, kernel, pad=pad, built=built)

    def plan(
        self,
        problem: Any,
        device: Device | str | None = None,
        *,
        kernel: KernelArg = None,
        pad: bool = False,
    ) -> Plan:
        """The launch plan of `run` for host arrays: kernels, padding, preparations, memory. Loads the kernels.

        Plans are cached: for an equal problem this is one lookup.
        """
        if device is not None and type(kernel) is not list:
            found = self._plans.get((problem, getattr(device, "name", device), kernel, pad))
            if found is not None:
                return found[0]
        return self._dispatcher.plan(problem, resolve_device(device), kernel, pad)[0]

    def bind(
        self, problem: Any, device: Device | str, *, kernel: KernelArg = None
    ) -> tuple[Plan, BoundKernel | CallSequence]:
        """The plan of a problem, and the function that launches it, for addresses of tensors and a stream."""
        return self._dispatcher.plan(problem, resolve_device(device), kernel, pad=False)

    def run(
        self,
        problem: Any,
        *tensors: Any,
        out: Any = None,
        stream: Any = None,
        device: Device | str | None = None,
        kernel: KernelArg = None,
        pad: bool = False,
        prepared: Collection[str] = (),
    ) -> Any:
        """Compute a problem. Pass the inputs in the op's order, in host memory or on a device. Returns the output(s).

        Host arrays (NumPy, torch, DLPack) have the logical shape and any strides; they are copied to the device, and
        the call returns when the output is copied back. Device tensors are passed by address, and the call returns
        when the kernel is launched in `stream`. Without `out`, an output of the inputs' type is allocated; tensors that
        are updated in place must be passed as `out`. Several outputs, and their `out`, are tuples in the op's order.

        The device is the argument's, else that of the tensors, else the current one. `kernel` overrides selection.
        `pad` allows a larger problem whose result is cut. `prepared` names device tensors that are already prepared.
        """
        path = self._fast_paths.get(id(problem))
        if path is not None:
            return path(tensors, out, stream, device, kernel, pad, prepared)
        return self._dispatcher.run(problem, tensors, out, stream, device, kernel, pad, prepared)

    def find_fast_path(self, problem: Any) -> FastPath | None:
        """The fast path of `run` for a problem object, if a call with device tensors has created it."""
        return self._fast_paths.get(id(problem))

    def to_json(self, *, full: bool = False) -> dict[str, Any]:
        """Names, keys, priorities and failures as plain values. The artifacts stay in the store.

        With `full` also statistics, and of each kernel all config fields and the registers and memory of its build.
        """
        return to_document(self.kernels, self.results, self.priorities, full=full)

    @classmethod
    def from_json(cls, document: Any, store: Store | None = None) -> Registry:
        """Restore a registry from the result of `to_json`. Kernels whose artifact is no longer in the store are not
        built."""
        try:
            saved = list(read_document(document))
        except CONTENT_ERRORS as error:
            raise InvalidValueError(f"is not a saved registry: {describe_error(error)}") from error
        source = store or Store()
        results = {each.kernel: found for each in saved if (found := _restore_result(each, source)) is not None}
        priorities = {each.kernel: each.priority for each in saved if each.priority is not None}
        return cls(tuple(each.kernel for each in saved), results, priorities=priorities)

    def save(self, path: Path | str, *, full: bool = False) -> None:
        """Write `to_json` to a file. `load` reads it, `full` or not."""
        write_text(Path(path), json.dumps(self.to_json(full=full), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path | str, store: Store | None = None) -> Registry:
        """Read a file that `save` wrote, also one of an older version."""
        with convert_read_errors(path):
            return cls.from_json(read_json(path), store)


@report_progress
def build(
    kernels: Kernels,
    arch: str | Sequence[str] | None = None,
    jobs: int | None = None,
    *,
    retry: bool = False,
    trace: Path | str | None = None,
    limit: int | None = MOST_KERNELS,
) -> Registry:
    """Build kernels, spaces, sets, configs or names of these for one or more GPUs. Artifacts in the store are reused.

    The returned registry has every kernel; `failures` has those that did not compile. More kernels than `limit` are an
    error before anything is built: a field of a space was probably forgotten. None removes the limit.
    """
    return Registry(resolve_kernels(kernels, arch, limit)).build(jobs, retry=retry, trace=trace)


def _filter_priorities(priorities: Mapping[Kernel, int], kept: Sequence[Kernel]) -> dict[Kernel, int]:
    return {kernel: priorities[kernel] for kernel in kept if kernel in priorities}


def _restore_result(saved: SavedKernel, store: Store) -> Artifact | Failure | None:
    if saved.failure is not None or saved.key is None:
        return saved.failure
    found = store.get(saved.key)
    # The manifest must have the same name: the key alone does not identify the kernel.
    return found if found is not None and found.facts.get("slug") == saved.kernel.slug else None
