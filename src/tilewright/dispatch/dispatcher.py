"""Runs problems: resolves the device, selects kernels, binds and launches them, and caches plans."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, TensorError, UnsupportedError, choose
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.dispatch.fast_path import FastPath, make_fast_path
from tilewright.dispatch.launch import BoundKernel, CallSequence, Functions, bind_functions, bind_selection
from tilewright.dispatch.plan import Plan, get_execution
from tilewright.dispatch.run_tensors import (
    DisjointPair,
    allocate_output,
    apply_strides,
    check_disjoint,
    check_outputs,
    check_ready,
    check_shapes_and_types,
    is_on_host,
    list_disjoint_pairs,
    match_tensors,
    run_host,
)
from tilewright.dispatch.select_stages import select_stages
from tilewright.dispatch.tensors import View, find_torch_stream, increment_versions, to_view
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.execution import Execution, Tensor, plan_one_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.select import CandidatePool, select_from
from tilewright.select.selection import KernelArg, Selection, Selector

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

# Maximum number of cached plans. A server with more shapes than this creates some of them again.
MOST_PLANS = 4096
_RESOURCES = ("vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes")


class _CachedCall(NamedTuple):
    """A bound call for a problem, which it keeps alive, and the pairs of tensors that must not share memory."""

    call: BoundKernel | CallSequence
    problem: Any
    tensors: Sequence[Tensor]
    pairs: Sequence[DisjointPair]


class Dispatcher:
    """Selects and runs the kernels of one registry, which never changes. Any number of threads may use it at once.

    `fast_paths` has the fast path of a problem by the problem's id; a fast path keeps its problem alive, so no other
    object can have that id. `_calls` has the bound calls by tensor specs, `plans` the plans of equal problems.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        results: Mapping[Kernel, Artifact | Failure],
        priorities: Mapping[Kernel, int],
        selector: Selector,
    ) -> None:
        self._kernels = kernels
        self._results = results
        self._priorities = priorities
        self._selector = selector
        self.fast_paths: dict[int, FastPath] = {}
        self._calls: dict[Any, _CachedCall] = {}
        self.plans: dict[Any, tuple[Plan, BoundKernel | CallSequence]] = {}
        self._functions: dict[tuple[Device, Kernel], Functions] = {}
        self._pools: dict[tuple[str, bool], CandidatePool] = {}
        self._making = threading.RLock()

    def select(
        self,
        problem: Any,
        where: Device | Arch | str | None,
        kernel: KernelArg = None,
        *,
        pad: bool = False,
        built: bool = True,
    ) -> Selection:
        """Rank the kernels for each stage of a problem; with `built`, kernels that are not built are rejected."""
        present = sorted(self._by_arch)
        arch = resolve_arch(where, present)
        candidates = self._by_arch.get(arch.name, ())
        wanted = self._resolve_kernels(kernel)
        for each in wanted:
            if each not in candidates:
                raise UnsupportedError(f"{each.slug} is not a kernel of this registry for {arch.name}")
        if not candidates:
            raise UnsupportedError(
                f"the registry has no kernel for {arch.name}; it has kernels for {_join_names(present)}"
            )
        op = self._find_op(problem)
        execution = None if op is None else op.execution
        staged = execution is not None and execution.next_stage is not plan_one_kernel
        pool = self._get_pool(arch, built, () if staged else wanted)
        select_one = functools.partial(select_from, pool, selector=self._selector, pad=pad)
        if execution is None or not staged:
            return select_one(problem)
        return select_stages(problem, execution, select_one, wanted)

    def plan(
        self, problem: Any, device: Device, kernel: KernelArg, pad: bool
    ) -> tuple[Plan, BoundKernel | CallSequence]:
        """The launch plan of a problem on a device, and the bound call; cached."""
        named = tuple(kernel) if isinstance(kernel, list) else kernel  # a list is not hashable
        key = (problem, device.name, named, pad)
        found = self.plans.get(key)
        if found is None:
            with self._making:
                found = self.plans.get(key)
                if found is None:
                    selection = self.select(problem, device, named, pad=pad)
                    found = bind_selection(selection, device, functools.partial(self.load_functions, device))
                    if len(self.plans) >= MOST_PLANS:
                        self.plans.clear()
                    self.plans[key] = found
        return found

    def load_functions(self, device: Device, kernel: Kernel) -> Functions:
        """A kernel's C functions, from its checked and loaded library; cached."""
        with self._making:
            found = self._functions.get((device, kernel))
            if found is None:
                artifact = self._results[kernel]
                assert isinstance(artifact, Artifact)
                found = self._functions[device, kernel] = bind_functions(device, artifact.verify_file(LIBRARY), kernel)
            return found

    def run(
        self,
        problem: Any,
        tensors: Sequence[Any],
        out: Any,
        stream: Any,
        device: Device | str | None,
        kernel: KernelArg,
        pad: bool,
        prepared: Collection[str],
    ) -> Any:
        """Compute a problem. Returns the output, or a tuple of outputs in the op's order if there are several."""
        inputs = [to_view(tensor) for tensor in tensors]
        outputs = [to_view(each) for each in (out if isinstance(out, tuple | list) else [] if out is None else [out])]
        if isinstance(kernel, list):
            kernel = tuple(kernel)
        if stream is None:
            stream = find_torch_stream(inputs)
        options = (device, kernel, pad, tuple(prepared))
        found = self._calls.get((id(problem), options, *[view.form for view in inputs + outputs]))
        if found is not None:
            check_disjoint(found.pairs, found.tensors, inputs + outputs)
            found.call([view.address for view in inputs + outputs], stream)
            increment_versions(outputs)
            return out
        execution = self._find_execution(problem)
        wanted = execution.tensors(problem)
        made = sum(tensor.output for tensor in wanted)
        views = match_tensors(wanted, inputs, outputs if out is not None else [None] * made)
        on_host = is_on_host(wanted, views)
        chosen = resolve_device(device, () if on_host else [view.form.place for view in views if view is not None])
        check_shapes_and_types(wanted, views, chosen.arch)
        check_outputs(wanted, views)
        # Host arrays are copied before the kernel writes, so only outputs must not share memory with each other.
        pairs = list_disjoint_pairs(wanted, [None if view is None else view.form for view in views], inputs=not on_host)
        check_disjoint(pairs, wanted, views)
        if on_host:
            plan, call = self.plan(problem, chosen, kernel, pad)
            if prepared:
                raise InvalidValueError("prepared is for device tensors; host arrays are prepared when they are copied")
            results = run_host(call, plan, wanted, views, stream)
            increment_versions(outputs)
            return _pick_outputs(out, results)
        real = apply_strides(execution, problem, wanted, views)
        plan, call = self.plan(real, chosen, kernel, pad)
        check_ready(plan.stages[0], prepared)
        given = [
            allocate_output(tensor, views, chosen) if view is None else view
            for tensor, view in zip(execution.tensors(real), views, strict=True)
        ]
        if all(tensor.output for tensor in wanted[-made:]):
            pairs = list_disjoint_pairs(wanted, [view.form for view in given])
            self._store_call(_CachedCall(call, problem, wanted, pairs), given, options, prepared)
        call([view.address for view in given], stream)
        increment_versions(outputs)
        return _pick_outputs(out, [view.tensor for t, view in zip(wanted, given, strict=True) if t.output])

    def _store_call(
        self, known: _CachedCall, views: Sequence[View], options: tuple[Any, ...], prepared: Collection[str]
    ) -> None:
        """Cache the call, for tensors in the order inputs, then outputs."""
        forms = [view.form for view in views]
        call, problem = known.call, known.problem
        outputs = sum(tensor.output for tensor in known.tensors)
        otherwise = functools.partial(self.run, problem)
        path = make_fast_path(call, forms, known.pairs, outputs, (*options[:3], prepared), otherwise)
        with self._making:
            if len(self._calls) >= MOST_PLANS:
                self._calls.clear()
                self.fast_paths.clear()
            self._calls[id(problem), options, *forms] = known
            if path is not None:
                self.fast_paths[id(problem)] = path

    def _get_pool(self, arch: Arch, built: bool, only: Sequence[Kernel]) -> CandidatePool:
        """The pool of kernels for a GPU, cached; with `only`, a new pool of these kernels."""
        with self._making:
            found = self._pools.get((arch.name, built))
            if found is None or only:
                kernels = [k for k in self._by_arch[arch.name] if not only or k in only]
                unusable = {k: reason for k in kernels if (reason := self._explain_unusable(k, built))}
                uses = read_resource_usage({k: self._results.get(k) for k in kernels})
                found = CandidatePool.create(arch, kernels, self._priorities, unusable, uses)
                if not only:
                    self._pools[arch.name, built] = found
            return found

    def _explain_unusable(self, kernel: Kernel, built: bool) -> str:
        result = self._results.get(kernel)
        if isinstance(result, Failure):
            errors = result.facts.get("errors") or ["no error was named"]
            return f"it did not compile: {errors[0]}"
        return "it is not built: call build(), or pass built=False" if result is None and built else ""

    def _find_execution(self, problem: Any) -> Execution:
        op = self._find_op(problem)
        if op is not None:
            return get_execution(op.name)
        ops = [op.name for op in self._ops.values()]
        raise InvalidValueError(f"{problem!r} is not a problem of the registry's ops: {_join_names(ops)}")

    def _find_op(self, problem: Any) -> Op | None:
        """The op of a problem, if the registry has kernels of it."""
        return self._ops.get(type(problem))

    @functools.cached_property
    def _by_arch(self) -> dict[str, tuple[Kernel, ...]]:
        """The kernels of each GPU, in order of registration."""
        archs = dict.fromkeys(kernel.arch for kernel in self._kernels)
        return {arch: tuple(kernel for kernel in self._kernels if kernel.arch == arch) for arch in archs}

    @functools.cached_property
    def _ops(self) -> dict[type, Op]:
        """The ops of the kernels, by the type of their problems."""
        ops = map(find_op, dict.fromkeys(kernel.op for kernel in self._kernels))
        return {op.problem_type: op for op in ops}

    def _resolve_kernels(self, named: KernelArg) -> tuple[Kernel, ...]:
        """The kernels named by the caller, if any."""
        if named is None:
            return ()
        known = {kernel.slug: kernel for kernel in self._kernels}
        each = (named,) if isinstance(named, Kernel | str) else named
        return tuple(known[choose("kernel of this registry", k, known)] if isinstance(k, str) else k for k in each)


def _pick_outputs(out: Any, results: Sequence[Any]) -> Any:
    if out is not None:
        return out
    return results[0] if len(results) == 1 else tuple(results)


def _join_names(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def resolve_device(device: Device | str | None, places: Iterable[Any] = ()) -> Device:
    """The device: the argument's, else the tensors', else the current one. No device is used by default.

    `places` are the devices of the tensors: a device, or the index of a GPU.
    """
    from tilewright.runtime.device import Device, current_device, devices, read_device  # noqa: PLC0415  (to run only)

    named = None if device is None else read_device(device)
    held = {Device(f"gpu:{place}") if isinstance(place, int) else place for place in places}
    if named is not None:
        if held - {named}:
            raise TensorError(
                f"device is {named.name}, but tensors are on {_list_device_names(held - {named})}: copy them first"
            )
        return named
    if len(held) > 1:
        raise TensorError(f"tensors are on several devices: {_list_device_names(held)}. Copy them to one.")
    found = held.pop() if held else current_device()
    if found is None:
        raise DeviceError(
            "no device is set: pass device=…, use `with tilewright.Device(…):`, or set TILEWRIGHT_DEVICE. "
            f"Available: {', '.join(each.name if isinstance(each, Device) else str(each) for each in devices())}."
        )
    return found


def resolve_arch(where: Device | Arch | str | None, present: Sequence[str]) -> Arch:
    """The GPU to select for: a device's, or a named one. Without a device, the only GPU in `present`."""
    from tilewright.runtime.device import current_device, read_device  # noqa: PLC0415  (see above)

    if isinstance(where, Arch):
        return where
    if isinstance(where, str) and ":" not in where:
        return archs.load(where)
    device = current_device() if where is None else read_device(where)
    if device is not None:
        return device.arch
    if len(present) == 1:
        return archs.load(present[0])
    raise InvalidValueError(
        f"there are kernels for {', '.join(present) or 'no GPU'}: pass device=…, a device or the name of a GPU"
    )


def _list_device_names(devices: Iterable[Device]) -> str:
    return ", ".join(sorted(device.name for device in devices))


def read_resource_usage(results: Mapping[Kernel, Any]) -> dict[Kernel, ResourceUse]:
    """Registers and LDS of the kernels whose artifact has them."""
    found = {kernel: _read_usage(entry) for kernel, entry in results.items() if isinstance(entry, Artifact)}
    return {kernel: use for kernel, use in found.items() if use is not None}


def _read_usage(artifact: Artifact) -> ResourceUse | None:
    """The maximum over the device kernels of one artifact (loop and tail variants): any of them may be launched."""
    listed = artifact.resources
    if not listed:
        return None
    return ResourceUse(**{name: max(getattr(each, name) for each in listed) for name in _RESOURCES})
