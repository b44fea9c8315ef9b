"""Runs functions for arrays: plans them by the specs of the arrays, prepares kernels, and caches the calls.

The first call for certain specs plans, selects, builds and loads. Later calls look up the prepared call by the specs,
which are unique objects, and launch.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.dispatch.dispatcher import resolve_device
from tilewright.dispatch.fast_path import FastPath
from tilewright.dispatch.tensors import (
    SIZES,
    TensorSpec,
    View,
    find_torch_stream,
    get_spec,
    get_torch,
    increment_versions,
    to_torch_dtype,
    to_view,
    view_on,
)
from tilewright.functions.device_copies import (
    add_to_result,
    check_can_add,
    copy_result,
    fill_with_zeros,
    get_device_zeros,
    make_host_array,
    pack,
    run_padded,
    use_torch_stream,
)
from tilewright.functions.kernel_choice import prepare_registry
from tilewright.functions.options import Options, get_options
from tilewright.ops.array_plan import ZEROS, ArrayFunction, ArrayLaunch, ArrayPlan, ArraySpec
from tilewright.ops.kernel import Kernel
from tilewright.registry.registry import Registry
from tilewright.runtime.device import Device, current_device

# Maximum number of cached calls. A server with more shapes than this creates some of them again.
MOST_CALLS = 4096
# Launches the kernels of a call for device arrays whose specs are known: (arrays, out, stream).
FastCall = Callable[[tuple[Any, ...], Any, Any], Any]

_calls: dict[Any, _PreparedCall] = {}
_fast_calls: dict[Any, FastCall] = {}
_making = threading.RLock()
_get_form = operator.attrgetter("form")


def compute(
    function: ArrayFunction,
    arrays: tuple[Any, ...],
    out: Any,
    stream: Any,
    device: Device | str | None,
    options: tuple[Hashable, ...],
) -> Any:
    """Compute a function of an op for arrays. Returns `out`, or new results of the arrays' library."""
    settings = get_options()
    try:
        key: Any = (function, options, device, settings, out.form, *map(_get_form, arrays))
        fast = _fast_calls.get(key)
    except (AttributeError, TypeError):  # arrays of other libraries, or without an output; options that are errors
        key = fast = None
    if fast is not None:
        return fast(arrays, out, stream)
    call, views, outs = _find_call(function, arrays, out, device, settings, options)
    result = call.run(views, outs, out, stream)
    if key is not None:
        _store_fast_call(key, call)
    return result


def list_used_kernels() -> tuple[Kernel, ...]:
    """The kernels of all calls of functions for arrays in this process, in order of their first use."""
    calls = list(_calls.values())
    return tuple(dict.fromkeys(k for call in calls for launch in call.launches for k in launch.registry.kernels))


def _find_call(
    function: ArrayFunction,
    arrays: tuple[Any, ...],
    out: Any,
    device: Device | str | None,
    settings: Options,
    options: tuple[Hashable, ...],
) -> tuple[_PreparedCall, list[View | None], list[View] | None]:
    passed = [None if array is None else to_view(array) for array in arrays]
    views = passed + [None] * (len(function.names) - len(passed))
    outs = None if out is None else [to_view(each) for each in (out if isinstance(out, tuple) else (out,))]
    named = device or settings.device
    forms = [None if view is None else view.form for view in (*views, *(outs or ()))]
    # The device of host arrays may be that of a `with` block or of the environment.
    place = named or (current_device() if any(form is not None and form.place is None for form in forms) else None)
    key = (function, options, settings, place, *forms)
    try:
        found = _calls.get(key)
    except TypeError as error:
        advice = "pass numbers, texts or tuples of these as options, and a `Device` or its name as device"
        raise InvalidValueError(
            f"options {options!r} or device {device!r} cannot be used ({error}): {advice}"
        ) from error
    if found is None:
        with _making:
            found = _prepare(function, views, outs, settings, named, options)
            if len(_calls) >= MOST_CALLS:
                _calls.clear()
            _calls[key] = found
    return found, views, outs


def _prepare(
    function: ArrayFunction,
    views: Sequence[View | None],
    outs: Sequence[View] | None,
    settings: Options,
    device: Device | str | None,
    options: tuple[Hashable, ...],
) -> _PreparedCall:
    given = [view for view in (*views, *(outs or ())) if view is not None]
    missing = [name for name, view in zip(function.names[: function.required], views, strict=False) if view is None]
    if missing:
        raise TensorError(f"{', '.join(missing)} must be given: None is no array")
    on_host = {view.on_host for view in given}
    if len(on_host) > 1:
        raise TensorError("some arrays are in host memory and some on a device: copy all of them to one side first")
    chosen = resolve_device(device, () if on_host == {True} else [view.form.place for view in given])
    specs = [
        None if view is None else ArraySpec(place, name, view.dtype, view.shape, view.strides)
        for place, (name, view) in enumerate(zip(function.names, views, strict=True))
    ]
    count = len(specs)
    results: list[ArraySpec | None] = [
        ArraySpec(count + place, "out", view.dtype, view.shape, view.strides) for place, view in enumerate(outs or ())
    ]
    plan = function.planner(chosen.arch, *specs, *(results or [None]), *options)
    if plan.addend is not None:
        added = views[plan.addend.argument]
        assert added is not None
        check_can_add(given[0] if outs is None else outs[0], added)
    launches = [
        _PreparedLaunch(launch, prepare_registry(launch.problem, chosen, settings), chosen) for launch in plan.launches
    ]
    return _PreparedCall(plan, chosen, tuple(launches), on_host=True in on_host)


def _store_fast_call(key: Any, call: _PreparedCall) -> None:
    """Cache the fast call of a call that has one."""
    run = call.make_fast_call()
    if run is None:
        return
    with _making:
        if len(_fast_calls) >= MOST_CALLS:
            _fast_calls.clear()
        _fast_calls[key] = run


def _pass_arrays(path: FastPath, device: Device) -> FastCall:
    def run(arrays: tuple[Any, ...], out: Any, stream: Any) -> Any:
        return path(arrays, out, stream, device, None, False, ())

    return run


def _pass_views(path: FastPath, device: Device, launch: _PreparedLaunch) -> FastCall:
    """Views of the arrays, for a launch that needs another shape or order of them."""
    inputs = [(part.argument, part.view) for part in launch.inputs]
    view_result = launch.outputs[0].view

    def run(arrays: tuple[Any, ...], out: Any, stream: Any) -> Any:
        path(tuple([view(arrays[place]) for place, view in inputs]), view_result(out), stream, device, None, False, ())
        return out

    return run


class _PreparedLaunch:
    """A launch whose kernels are built. `padded` is the larger problem that is computed instead, if any."""

    __slots__ = ("inputs", "outputs", "padded", "problem", "registry")

    def __init__(self, launch: ArrayLaunch, registry: Registry, device: Device) -> None:
        self.registry = registry
        self.problem = launch.problem
        self.inputs = [_Part(spec) for spec in launch.inputs]
        self.outputs = [_Part(spec) for spec in launch.outputs]
        plan = registry.plan(launch.problem, device, pad=True)
        self.padded = None if plan.stages[0].padding is None else plan.launched


class _Part:
    """A view of an argument or a result."""

    __slots__ = ("argument", "form", "offset", "place", "spec", "whole")

    def __init__(self, spec: ArraySpec) -> None:
        self.spec = spec
        self.argument = spec.argument
        self.offset = spec.offset * SIZES[spec.dtype]
        self.form: TensorSpec | None = None
        self.place: Any = None
        self.whole = False  # whether it is all of the array

    def take(self, views: Sequence[View | None]) -> View:
        """The view of the arrays of a call."""
        whole = views[self.argument]
        assert whole is not None
        return self.view(whole)

    def view(self, whole: View) -> View:
        """The view of its array."""
        form = self.form
        if form is None or self.place is not whole.form.place:
            self.place = whole.form.place
            form = self.form = get_spec(self.spec.shape, self.spec.strides, self.spec.dtype, self.place)
        if form is whole.form and not self.offset:
            self.whole = True
            return whole
        part = View.__new__(View)
        part.address = whole.address + self.offset
        part.form = form
        part.owner = whole.owner
        part.library = "tilewright"
        return part


@dataclass(frozen=True, eq=False)
class _PreparedCall:
    """A planned function call whose kernels are built."""

    plan: ArrayPlan
    device: Device
    launches: tuple[_PreparedLaunch, ...]
    on_host: bool

    def make_fast_call(self) -> FastCall | None:
        """A function for later calls, if they are one launch of the arrays or of views of them, without copies."""
        if self.on_host or len(self.launches) != 1 or self.launches[0].padded is not None or self.plan.addend:
            return None
        (launch,) = self.launches
        parts = (*launch.inputs, *launch.outputs)
        path = launch.registry.find_fast_path(launch.problem)
        if path is None or any(part.spec.packed or part.argument == ZEROS for part in parts):
            return None
        in_order = [part.argument for part in launch.inputs] == list(range(len(launch.inputs)))
        if in_order and all(part.whole for part in parts):
            return _pass_arrays(path, self.device)
        return _pass_views(path, self.device, launch) if len(launch.outputs) == 1 else None

    def run(self, views: list[View | None], outs: list[View] | None, out: Any, stream: Any) -> Any:
        if stream is None:
            return self._run(views, outs, out, None if self.on_host else find_torch_stream(views))
        with use_torch_stream(views, stream):
            return self._run(views, outs, out, stream)

    def _run(self, views: list[View | None], outs: list[View] | None, out: Any, stream: Any) -> Any:
        results = self._allocate_results(views) if outs is None else outs
        stored = [
            self._allocate(spec, views) if spec.packed else result
            for spec, result in zip(self.plan.results, results, strict=True)
        ]
        if self.plan.zeros:
            for result in results:
                fill_with_zeros(result)
        arrays: list[View | None] = [*self._pack_arguments(views), *stored]
        for launch in self.launches:
            self._launch(launch, arrays, stream)
        for result, store in zip(results, stored, strict=True):
            if store is not result:
                copy_result(store, result)
        if self.plan.addend is not None:
            add_to_result(results[0], _Part(self.plan.addend).take(views))
        if outs is not None:
            increment_versions(outs)  # those of parts and of copies; launches that write a whole tensor did it, too
            return out
        made = [result.tensor for result in results]
        return made[0] if len(made) == 1 else tuple(made)

    def _launch(self, launch: _PreparedLaunch, arrays: Sequence[View | None], stream: Any) -> None:
        inputs = [self._get_zeros(part.spec) if part.argument == ZEROS else part.take(arrays) for part in launch.inputs]
        outputs = [part.take(arrays) for part in launch.outputs]
        if launch.padded is not None and not self.on_host:
            run_padded(launch.registry, launch.padded, inputs, outputs, stream, self.device)
            return
        target = outputs[0] if len(outputs) == 1 else tuple(outputs)
        launch.registry.run(launch.problem, *inputs, out=target, stream=stream, device=self.device, pad=self.on_host)

    def _pack_arguments(self, views: list[View | None]) -> list[View | None]:
        parts = [part for launch in self.launches for part in launch.inputs if part.spec.packed]
        if not parts:
            return views
        wanted = {part.argument: part.spec for part in parts}
        return [
            view if place not in wanted or view is None else pack(view, wanted[place].order, wanted[place].expanded)
            for place, view in enumerate(views)
        ]

    def _allocate_results(self, views: Sequence[View | None]) -> list[View]:
        return [self._allocate(spec, views) for spec in self.plan.results]

    def _allocate(self, spec: ArraySpec, views: Sequence[View | None]) -> View:
        """An array of the library of the first argument."""
        first = next(view for view in views if view is not None)
        if first.library == "torch":
            like: Any = first.owner
            dtype = to_torch_dtype(spec.dtype)
            return to_view(get_torch().empty_strided(spec.shape, spec.strides, dtype=dtype, device=like.device))
        if self.on_host:
            return make_host_array(spec.shape, spec.dtype, spec.strides)
        if first.library == "dlpack":
            raise TensorError(f"{spec.name} cannot be allocated: DLPack has no function for that. Pass out=….")
        buffer = self.device.allocate(max(1, spec.size) * SIZES[spec.dtype], spec.name)
        return view_on(buffer, spec.shape, spec.dtype, spec.strides)

    def _get_zeros(self, spec: ArraySpec) -> View:
        if self.on_host:
            return make_host_array(spec.shape, spec.dtype, zeros=True)
        return get_device_zeros(self.device, spec.shape, spec.dtype)
