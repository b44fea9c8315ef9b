"""Problem and tensors in, launch out; plans are remembered."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, UnsupportedError, choose
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.unit import LIBRARY
from tilewright.dispatch import fitting
from tilewright.dispatch.device_tensors import check_ready, new_output
from tilewright.dispatch.devices import resolve_arch, resolve_device
from tilewright.dispatch.host_arrays import run_host
from tilewright.dispatch.launch import Call, Functions, functions_of
from tilewright.dispatch.plan import Plan, execution_of, stage_of
from tilewright.dispatch.select import Choice, Selection, Selector, select
from tilewright.dispatch.short_way import Way, short_way
from tilewright.dispatch.tensors import View, view_of
from tilewright.ops import op_named
from tilewright.ops.execution import Execution
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

# Plans that are kept. A server that meets more shapes than this makes some of them anew.
MOST_PLANS = 4096


class Dispatcher:
    """Chooses and runs the kernels of one registry, which never changes. Any number of threads may use it at once.

    `ways` has the short way of a problem by its identity; a way keeps its problem alive, so no other object can have
    that identity. `_calls` has the bound calls for other forms of its tensors, `_plans` those of equal problems.
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
        self.ways: dict[int, Way] = {}
        self._calls: dict[Any, tuple[Call, Any]] = {}
        self._plans: dict[Any, tuple[Plan, Call]] = {}
        self._functions: dict[tuple[Device, Kernel], Functions] = {}
        self._making = threading.RLock()

    def select(
        self,
        problem: Any,
        where: Device | Arch | str | None,
        kernel: Kernel | str | None = None,
        *,
        pad: bool = False,
        built: bool = True,
    ) -> Selection:
        """Rank the kernels for a problem; with `built`, those that are not built are rejected."""
        present = sorted({k.arch for k in self._kernels})
        arch = resolve_arch(where, present)
        only = self._kernel(kernel)
        candidates = [k for k in self._kernels if k.arch == arch.name and only in (None, k)]
        if only is not None and not candidates:
            raise UnsupportedError(f"{only.slug} is not a kernel of this registry for {arch.name}")
        if not candidates:
            raise UnsupportedError(f"the registry has no kernel for {arch.name}; it has kernels for {_listed(present)}")
        unusable = {k: reason for k in candidates if (reason := self._unusable(k, built))}
        return select(problem, arch, candidates, self._priorities, pad=pad, selector=self._selector, unusable=unusable)

    def plan(self, problem: Any, device: Device, kernel: Kernel | str | None, pad: bool) -> tuple[Plan, Call]:
        """What is done for a problem on a device, and the bound call; made once."""
        key = (problem, device, kernel, pad)
        found = self._plans.get(key)
        if found is None:
            with self._making:
                found = self._plans.get(key)
                if found is None:
                    found = self._make_plan(problem, device, kernel, pad)
                    if len(self._plans) >= MOST_PLANS:
                        self._plans.clear()
                    self._plans[key] = found
        return found

    def functions(self, device: Device, kernel: Kernel) -> Functions:
        """A kernel's C functions, its library checked and loaded; bound once."""
        with self._making:
            found = self._functions.get((device, kernel))
            if found is None:
                artifact = self._results[kernel]
                assert isinstance(artifact, Artifact)
                found = self._functions[device, kernel] = functions_of(device, artifact.checked(LIBRARY), kernel)
            return found

    def run(
        self,
        problem: Any,
        tensors: Sequence[Any],
        out: Any,
        stream: Any,
        device: Device | str | None,
        kernel: Kernel | str | None,
        pad: bool,
        prepared: Collection[str],
    ) -> Any:
        """Compute a problem. Gives the output, or a tuple of them where the op has several."""
        inputs = [view_of(tensor) for tensor in tensors]
        outputs = [view_of(each) for each in (out if isinstance(out, tuple | list) else [] if out is None else [out])]
        options = (device, kernel, pad, tuple(prepared))
        found = self._calls.get((id(problem), options, *[view.form for view in inputs + outputs]))
        if found is not None:
            found[0]([view.address for view in inputs + outputs], stream)
            return out
        execution = self._execution(problem)
        wanted = execution.tensors(problem)
        made = sum(tensor.output for tensor in wanted)
        views = fitting.match(wanted, inputs, outputs if out is not None else [None] * made)
        on_host = fitting.on_host(wanted, views)
        chosen = resolve_device(device, () if on_host else [view.form.place for view in views if view is not None])
        fitting.check(wanted, views, chosen.arch)
        if on_host:
            plan, call = self.plan(problem, chosen, kernel, pad)
            if prepared:
                raise InvalidValueError("prepared is for device tensors; host arrays are prepared on their way")
            results = run_host(call, plan.stages[0], wanted, views, stream)
            return results[0] if made == 1 else tuple(results)
        real = fitting.strided(execution, problem, wanted, views)
        plan, call = self.plan(real, chosen, kernel, pad)
        check_ready(plan.stages[0], prepared)
        given = [
            new_output(tensor, views, chosen) if view is None else view
            for tensor, view in zip(execution.tensors(real), views, strict=True)
        ]
        if made == 1 and wanted[-1].output:
            self._remember(problem, call, given, options, prepared)
        call([view.address for view in given], stream)
        results = [view.tensor for tensor, view in zip(wanted, given, strict=True) if tensor.output]
        return results[0] if made == 1 else tuple(results)

    def _remember(
        self, problem: Any, call: Call, views: Sequence[View], options: tuple[Any, ...], prepared: Collection[str]
    ) -> None:
        """Keep the call for the next time, for tensors that come inputs first and then the one output."""
        forms = [view.form for view in views]
        exact = (*options[:3], prepared)
        way = short_way(call, forms, exact, functools.partial(self.run, problem))
        with self._making:
            if len(self._calls) >= MOST_PLANS:
                self._calls.clear()
                self.ways.clear()
            self._calls[id(problem), options, *forms] = (call, problem)
            if way is not None:
                self.ways[id(problem)] = way

    def _make_plan(self, problem: Any, device: Device, kernel: Kernel | str | None, pad: bool) -> tuple[Plan, Call]:
        choice: Choice = self.select(problem, device, kernel, pad=pad).best
        launched = problem if choice.padded is None else choice.padded
        functions = self.functions(device, choice.kernel)
        call = Call(device, choice.kernel, functions, execution_of(choice.kernel.op), launched)
        stage = stage_of(choice, problem, call.workspace_bytes)
        return Plan(problem, device.name, choice.why, (stage,)), call

    def _unusable(self, kernel: Kernel, built: bool) -> str:
        result = self._results.get(kernel)
        if isinstance(result, Failure):
            errors = result.facts.get("errors") or ["no error was named"]
            return f"it did not compile: {errors[0]}"
        return "it is not built: call build(), or choose with built=False" if result is None and built else ""

    def _execution(self, problem: Any) -> Execution:
        ops = {op.name: op for op in (op_named(name) for name in dict.fromkeys(k.op for k in self._kernels))}
        for op in ops.values():
            if op.problem_type is type(problem):
                return execution_of(op.name)
        raise InvalidValueError(f"{problem!r} is no problem of the registry's kernels, which are of {_listed(ops)}")

    def _kernel(self, named: Kernel | str | None) -> Kernel | None:
        if not isinstance(named, str):
            return named
        known = {kernel.slug: kernel for kernel in self._kernels}
        return known[choose("kernel of this registry", named, known)]


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
