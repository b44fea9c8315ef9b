"""The kernels for a problem of a function call: selected from the pool by tuned tables and estimates, and built."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import CompileError, InvalidValueError, UnsupportedError
from tilewright.base.events import Notice, emit
from tilewright.base.knobs import store_dir
from tilewright.base.user_progress import report_progress
from tilewright.building.find_built import find_built
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.functions.options import Options
from tilewright.ops import infer_problem_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import format_short_problem
from tilewright.registry.members import resolve_kernels
from tilewright.registry.registry import Registry
from tilewright.select.chain import CHAIN
from tilewright.select.selection import Selection
from tilewright.select.tuned import TunedTable

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

# Maximum number of pools, and of registries of selected kernels, that are kept.
MOST_REGISTRIES = 1024

_lock = threading.RLock()
_taken: dict[tuple[Path, Kernel], Artifact] = {}
# Registries keep what selecting and loading prepare, so that a new shape costs only its own selection.
_pools: dict[tuple[int, int], tuple[Registry, object, object]] = {}
_kept: dict[Any, Registry] = {}


def prepare_registry(problem: Any, device: Device, options: Options) -> Registry:
    """A registry of the built kernels for a problem: one for each of its stages."""
    (registry,) = prepare_registries([problem], device.arch, options)
    if options.verify == "first":
        _verify_kernels(registry, device)
    return registry


@report_progress
def prepare_registries(problems: Sequence[Any], arch: Arch, options: Options) -> list[Registry]:
    """The registries of several problems on a GPU. Their kernels are built together."""
    with _lock:
        pools = [_find_pool(problem, arch, options) for problem in problems]
        if options.build == "auto":
            return _build_selected(pools, problems, arch)
        kernels = list(dict.fromkeys(kernel for pool in pools for kernel in pool.kernels))
        built = _build(kernels) if options.build == "ahead" else _take_from_store(kernels)
        known = [replace(pool, results={k: v for k, v in built.results.items() if k in pool}) for pool in pools]
        chosen = [_list_kernels(_select(pool, p, arch, options)) for pool, p in zip(known, problems, strict=True)]
        return [_keep_kernels(each, built, pool) for pool, each in zip(known, chosen, strict=True)]


def _build_selected(pools: Sequence[Registry], problems: Sequence[Any], arch: Arch) -> list[Registry]:
    chosen = [
        _list_kernels(pool.select(problem, arch, built=False, pad=True))
        for pool, problem in zip(pools, problems, strict=True)
    ]
    built = _build(list(dict.fromkeys(kernel for each in chosen for kernel in each)))
    for kernel, failure in built.failures.items():
        errors = failure.facts.get("errors") or ["no error was named"]
        raise CompileError(f"{kernel.slug} was selected, but it does not compile: {errors[0]}", failure.log)
    return [_keep_kernels(each, built, pool) for pool, each in zip(pools, chosen, strict=True)]


def _select(pool: Registry, problem: Any, arch: Arch, options: Options) -> Selection:
    found = pool.select(problem, arch, built=True, pad=True)
    if not found.choices and options.build == "never":
        best = pool.select(problem, arch, built=False, pad=True)
        wanted = best.best.kernel.slug  # raises an error with all reasons if no kernel supports the problem
        raise UnsupportedError(
            f"none of the {len(pool)} kernels for {format_short_problem(problem)} is in the store, and the option "
            f"build is 'never'. Build {wanted} first, for example with tilewright.warm, or use build='auto'"
        )
    return found


def _keep_kernels(kernels: tuple[Kernel, ...], built: Registry, pool: Registry) -> Registry:
    """The registry of some built kernels with the selector of their pool. Equal calls return the same one."""
    results = {kernel: built.artifact(kernel) for kernel in kernels}
    key = (kernels, pool.selector, tuple(artifact.folder for artifact in results.values()))
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= MOST_REGISTRIES:
            _kept.clear()
        found = _kept[key] = Registry(kernels, results, selector=pool.selector)
    return found


def _list_kernels(selection: Selection) -> tuple[Kernel, ...]:
    """The best kernel of each stage."""
    return tuple(dict.fromkeys(part.best.kernel for part in selection.stages))


def _build(kernels: Sequence[Kernel]) -> Registry:
    registry = _take_from_store(kernels)
    missing = [kernel for kernel in kernels if kernel not in registry.results]
    if missing:
        names = missing[0].slug if len(missing) == 1 else f"{len(missing)} kernels"
        emit(Notice(f"building {names} for the first call"))
    return registry.build() if missing else registry


def _take_from_store(kernels: Sequence[Kernel]) -> Registry:
    """A registry of kernels with those artifacts that are in the store. Nothing is compiled.

    Artifacts are looked up once in a process: finding the toolchain takes longer than planning a new shape.
    """
    store = store_dir()
    unknown = [kernel for kernel in kernels if (store, kernel) not in _taken]
    if unknown:
        _taken.update({(store, kernel): each for kernel, each in find_built(unknown).items()})
    results = {kernel: _taken[store, kernel] for kernel in kernels if (store, kernel) in _taken}
    return Registry(tuple(kernels), results)


def _find_pool(problem: Any, arch: Arch, options: Options) -> Registry:
    """The kernels to select from, none of them built."""
    if options.pool is None:
        portfolio = infer_problem_op(problem).portfolio
        if portfolio is None:
            raise InvalidValueError(f"{type(problem).__qualname__} has no portfolio: pass the option pool")
        kernels = portfolio.list_kernels(problem, arch)
        if not kernels:
            raise UnsupportedError(
                f"no kernel computes {format_short_problem(problem)} on {arch.name}. {portfolio.explain(problem, arch)}"
            )
    else:
        kernels = _resolve_pool(options, arch.name)
    pool = _make_pool(kernels, options.tuned)
    entry = None if options.tuned is None else options.tuned.find_entry(arch.name, problem)
    if entry is None or entry.kernel in pool:
        return pool
    return Registry((entry.kernel, *pool.kernels), selector=pool.selector)


def _make_pool(kernels: tuple[Kernel, ...], tuned: TunedTable | None) -> Registry:
    """The registry of kernels that are not built. The same objects give the same registry."""
    key = (id(kernels), id(tuned))
    found = _pools.get(key)
    if found is None:
        if len(_pools) >= MOST_REGISTRIES:
            _pools.clear()
        selector = CHAIN if tuned is None else replace(CHAIN, tuned=tuned)
        # The entry keeps both objects alive, so that no other ones can have their ids.
        found = _pools[key] = (Registry(tuple(dict.fromkeys(kernels)), selector=selector), kernels, tuned)
    return found[0]


@functools.lru_cache(maxsize=64)
def _resolve_pool(options: Options, arch: str) -> tuple[Kernel, ...]:
    return tuple(kernel for kernel in resolve_kernels(options.pool, arch) if kernel.arch == arch)


_verified: set[tuple[Kernel, str]] = set()


def _verify_kernels(registry: Registry, device: Device) -> None:
    """Check kernels on their trials, each once per process and device."""
    from tilewright.dispatch.verify import verify  # noqa: PLC0415  (loads NumPy)

    for kernel, artifact in registry.artifacts.items():
        if (kernel, device.name) in _verified:
            continue
        trials = get_execution(kernel.op).trials(kernel.config, device.arch)
        checks = verify(kernel, artifact, device, trials)
        wrong = [check for check in checks if check.verdict in ("wrong", "fault")]
        if wrong:
            raise UnsupportedError(
                f"{kernel.slug} is not correct on {device.name}: {len(wrong)} of {len(checks)} trials failed, the "
                f"first is {format_short_problem(wrong[0].problem)}"
            )
        _verified.add((kernel, device.name))
