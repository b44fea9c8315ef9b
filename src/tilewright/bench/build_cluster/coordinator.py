"""Build kernels on many machines with Ray. Each CPU of a node has a process that builds batches with the build engine.

Nodes exchange kernels through the shared store, whose claims keep two machines from building the same kernel. Each
finished kernel is also fetched into this machine's store. The kernels of a lost node are sent again, new nodes are
used, and a build that was stopped continues with the kernels that the shared store does not have.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.base import events
from tilewright.base.errors import ClusterError
from tilewright.base.extras import require_packages
from tilewright.bench.build_cluster.batches import MOST_LOSSES, KernelBatches, WaitingKernel
from tilewright.bench.build_cluster.handshake import BuilderInfo, Question, RightAnswers, sign_challenge
from tilewright.bench.build_cluster.node import BatchResult, KernelBuilder, KernelOutcome
from tilewright.bench.build_cluster.report import EXCLUDED, LOST, ClusterBuild, ClusterReport, NodeReport, list_reports
from tilewright.bench.build_cluster.shared_kernels import SharedKernels, require_shared_store
from tilewright.bench.cluster.executor import LOOK_S, PATIENCE_S, SEAT_FAILURES, format_cause, report_changes
from tilewright.bench.cluster.session import AUTO, RaySession, import_ray, read_shared_environment
from tilewright.bench.cluster.slots import CPU, DeviceSlot, Node, list_slots
from tilewright.building.builder import LIMIT_S, TASK, BuildResult, record_cost_if_possible
from tilewright.building.compile_costs import read_costs
from tilewright.building.compile_job import CompileJob, make_compile_jobs
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers, open_tiers
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.ops.kernel import Kernel

# Time to wait for an answer before nodes are checked again.
_PAUSE_S = 0.2


def build_on_cluster(
    kernels: Iterable[Kernel],
    *,
    address: str = AUTO,
    tiers: Tiers | None = None,
    limit_s: float = LIMIT_S,
    retry: bool = False,
    patience_s: float = PATIENCE_S,
) -> ClusterBuild:
    """Build legal kernels of any ops and GPUs on a Ray cluster. A kernel that does not compile does not stop others.

    The nodes need the coordinator's toolchain and CK headers, and the shared store that `TILEWRIGHT_REMOTE` names here.
    If every kernel is in a store already, the cluster is not contacted. Raises `ClusterError` if there is no shared
    store that can be written, no cluster, or for `patience_s` no node that can build.
    """
    require_packages("a cluster", ("ray",), "cluster")
    started, cpu_before = time.monotonic(), time.process_time()
    used = tiers or open_tiers()
    remote = require_shared_store(used)
    used.local.check_owner()
    toolchain = find_toolchain()
    units: dict[str, CompileJob] = {}
    listed = list(dict.fromkeys(kernels))
    with events.report_task("keys", len(listed)) as advance:
        for unit in make_compile_jobs(listed, toolchain):
            units[unit.key] = unit
            advance(unit.kernel.slug)
    shared = SharedKernels(units, used, remote, retry)
    results = shared.find(list(units))
    shared.upload_missing(results.values())
    found, nodes = len(results), {}
    if len(units) > found:
        waiting = _list_waiting([unit for key, unit in units.items() if key not in results], used.local)
        run = _ClusterRun(shared, toolchain, KernelBatches(waiting), limit_s, patience_s, RaySession(address))
        run.build_all()
        results |= run.results
        nodes = run.nodes
    report = ClusterReport(
        nodes=list_reports(nodes),
        kernels=len(units),
        found=found,
        coordinator_cpu_s=time.process_time() - cpu_before,
        wall_s=time.monotonic() - started,
        shared_store=remote.describe(),
    )
    by_kernel = {unit.kernel: results[key] for key, unit in units.items()}
    built = BuildResult(by_kernel, report.compiled, (), units, report.header_cpu_s, report.wall_s)
    return ClusterBuild(built, report)


def _list_waiting(units: Iterable[CompileJob], store: Store) -> dict[str, WaitingKernel]:
    costs = read_costs(store)
    waiting = {}
    for unit in units:
        group = f"{unit.kernel.op} {unit.kernel.arch}"  # each op has its headers, precompiled for each GPU
        waiting[unit.key] = WaitingKernel(unit.key, group, costs.estimate_cpu_s(unit.kernel))
    return waiting


@dataclass
class _Builder:
    """A builder process as the coordinator sees it."""

    slot: DeviceSlot
    actor: Any
    reference: Any  # Ray's reference to the answer that is awaited; None if there is none
    info: BuilderInfo | None = None
    batch: tuple[str, ...] = ()


@dataclass
class _ClusterRun:
    """The state of a running build."""

    shared: SharedKernels
    toolchain: Toolchain
    batches: KernelBatches
    limit_s: float
    patience_s: float
    session: RaySession
    results: dict[str, Artifact | Failure] = field(default_factory=dict)
    nodes: dict[str, NodeReport] = field(default_factory=dict)
    _ray: Any = field(default_factory=import_ray)
    _probe: str = field(default_factory=lambda: secrets.token_hex(16))
    _challenge: str = field(default_factory=lambda: secrets.token_hex(16))
    _living: Mapping[str, Node] = field(default_factory=dict)
    _builders: dict[DeviceSlot, _Builder] = field(default_factory=dict)
    _failures: Counter[DeviceSlot] = field(default_factory=Counter)  # consecutive ones
    _last_failure: str = ""
    _began: float = field(default_factory=time.monotonic)
    _looked: float = float("-inf")
    _moved: float = field(default_factory=time.monotonic)  # when a node last had work
    _done_cpu_s: float = 0.0  # cost of finished kernels

    @property
    def _units(self) -> Mapping[str, CompileJob]:
        return self.shared.units

    def build_all(self) -> None:
        """Build until every kernel has a result. All kernels that are finished by then survive any error."""
        try:
            with events.report_task(TASK, self.batches.waiting_count):
                while self.batches.waiting_count or any(builder.batch for builder in self._builders.values()):
                    self._update_nodes()
                    self._send_batches()
                    self._check_stalled()
                    self._collect_answers()
        finally:
            for builder in list(self._builders.values()):
                self._stop_builder(builder)
            self.session.close()

    # Nodes

    def _update_nodes(self) -> None:
        """Query the nodes. Builders of dead nodes are lost, and new slots get a builder."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        before, self._living = self._living, self.session.list_nodes()
        if self._looked > 0:
            report_changes(before, self._living, "kernels")
        self._looked = now
        for name, node in self._living.items():
            if node.cpus:
                self.nodes.setdefault(name, NodeReport(name, node.host, node.cpus))
        for name in self.nodes.keys() - self._living.keys():
            self._set_state(name, LOST, "the node is gone")
            self.batches.forget_node(name)
        for slot, builder in list(self._builders.items()):
            if slot.node not in self._living:
                self._handle_loss(builder, "its node is gone")
        slots = list_slots(self._living.values(), [CPU], builds=False)
        for slot in sorted(slots - self._builders.keys()):
            if self.nodes[slot.node].state != EXCLUDED and not self._is_excluded(slot):
                self._start_builder(slot)
        on = tuple(self._units[builder.batch[0]].kernel.slug for builder in self._builders.values() if builder.batch)
        events.emit(events.Working(TASK, on, self._estimate_remaining_s()))

    def _is_excluded(self, slot: DeviceSlot) -> bool:
        return self._failures[slot] >= SEAT_FAILURES

    def _start_builder(self, slot: DeviceSlot) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        self.shared.claim_probe(self._probe)  # renewed for each builder: nodes may join after the claim expired
        actor = (
            self._ray.remote(KernelBuilder)
            .options(
                num_cpus=1,
                max_restarts=0,  # a lost builder is replaced here, as its batch is known here
                scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node, soft=False),
            )
            .remote(dict(read_shared_environment()))
        )
        first = next(iter(self._units.values())).kernel.slug
        reference = actor.describe.remote(Question(first, self._probe, self._challenge))
        self._builders[slot] = _Builder(slot, actor, reference)

    def _accept_builder(self, builder: _Builder, info: BuilderInfo) -> None:
        from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

        signature = sign_challenge(self.shared.tiers.secret, self._challenge)
        right = RightAnswers(__version__, self.toolchain, next(iter(self._units)), signature)
        difference = right.describe_difference(info)
        if difference:
            self._exclude_node(builder, difference)
        else:
            builder.info = info

    def _exclude_node(self, builder: _Builder, why: str) -> None:
        """Stop using a node: trying again cannot help."""
        node = self.nodes[builder.slot.node]
        if node.state != EXCLUDED:
            self._last_failure = f"{node.host}: {why}"
            events.emit(events.Notice(f"node {node.node[:8]} ({node.host}) is not used: {why}"))
            self._set_state(node.node, EXCLUDED, why)
        self._stop_builder(builder)

    def _stop_builder(self, builder: _Builder) -> None:
        self._builders.pop(builder.slot, None)
        self._ray.kill(builder.actor)  # it may be alive, but its answers are not read any more
        if builder.info is not None:
            self.shared.release_claims(builder.batch, builder.info.holder)

    # Work

    def _send_batches(self) -> None:
        for builder in self._builders.values():
            if builder.info is None or builder.batch:
                continue
            batch = self.batches.take(builder.slot.node, len(self._builders))
            if not batch:
                return
            builder.batch = batch
            named = [(self._units[key].kernel.slug, key) for key in batch]
            builder.reference = builder.actor.build.remote(named, self.limit_s, self.shared.retry)

    def _collect_answers(self) -> None:
        """Wait for an answer, then handle all that have arrived."""
        waited = {builder.reference: builder for builder in self._builders.values() if builder.reference is not None}
        if not waited:
            time.sleep(_PAUSE_S)
            return
        ready, rest = self._ray.wait(list(waited), num_returns=1, timeout=_PAUSE_S)
        if ready and rest:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for reference in ready:
            self._handle_answer(waited[reference])

    def _handle_answer(self, builder: _Builder) -> None:
        reference, builder.reference = builder.reference, None
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if builder.info is None:
                self._exclude_node(builder, format_cause(error))
            else:
                self._handle_loss(builder, format_cause(error))
        except self._ray.exceptions.RayError as error:
            self._handle_loss(builder, format_cause(error))
        else:
            if isinstance(answer, BuilderInfo):
                self._accept_builder(builder, answer)
            else:
                self._handle_batch(builder, answer)

    def _handle_loss(self, builder: _Builder, why: str) -> None:
        """Handle a lost builder: the kernels of its batch that it did not finish are sent again."""
        node = builder.slot.node
        self._stop_builder(builder)
        if node in self._living:
            self._failures[builder.slot] += 1
            self._last_failure = f"{builder.slot}: {why}"
            then = "not used any more" if self._is_excluded(builder.slot) else "started again"
            events.emit(events.Notice(f"the builder on {builder.slot} is lost and {then}: {why}"))
            if all(map(self._is_excluded, list_slots([self._living[node]], [CPU], builds=False))):
                self._set_state(node, EXCLUDED, why)
        finished = self.shared.fetch(builder.batch)
        for key, entry in finished.items():
            self._settle(key, entry)
            compiled = isinstance(entry, Artifact)
            self._add_counts(node, compiled=int(compiled), failed=int(not compiled), cpu_s=_read_cost(entry))
        lost = [key for key in builder.batch if key not in finished]
        given_up = self.batches.take_back_lost(lost)
        self._add_counts(node, sent_again=len(lost) - len(given_up), failed=len(given_up))
        for key in given_up:
            text = f"{MOST_LOSSES} builders were lost while they built it; the last: {why}"
            self._settle(key, _make_failure(self._units[key], text))

    def _handle_batch(self, builder: _Builder, answer: BatchResult) -> None:
        node, builder.batch = builder.slot.node, ()
        self._failures.pop(builder.slot, None)
        for notice in answer.notices:
            events.emit(events.Notice(f"{self.nodes[node].host}: {notice}"))
        built = [outcome for outcome in answer.outcomes if outcome.built]
        self._add_counts(
            node,
            compiled=answer.compiled,
            hits=len(built) - answer.compiled,
            cpu_s=answer.cpu_s,
            header_cpu_s=answer.header_cpu_s,
        )
        fetched = self.shared.fetch([outcome.key for outcome in built if outcome.entry == outcome.key])
        for outcome in answer.outcomes:
            if outcome.built:
                self._settle_built(node, outcome, fetched.get(outcome.key))
            elif outcome.facts.get("lasting", True) or not self.batches.take_back_failed(outcome.key):
                self._add_counts(node, failed=1)
                self._settle(outcome.key, Failure(outcome.key, outcome.log, outcome.facts))

    def _settle_built(self, node: str, outcome: KernelOutcome, entry: Artifact | Failure | None) -> None:
        if outcome.entry != outcome.key:  # of another compiler, from a wheel that the node may use
            entry = self.shared.tiers.find_entries([outcome.entry]).get(outcome.entry)
        if entry is not None:
            self._settle(outcome.key, entry)
            return
        text = f"{self.shared.remote.describe()} does not serve the kernel that {self.nodes[node].host} uploaded"
        if self.batches.take_back_failed(outcome.key):
            events.emit(events.Notice(f"{text}; it is sent again: {self._units[outcome.key].kernel.slug}"))
            return
        self._add_counts(node, failed=1)
        self._settle(outcome.key, _make_failure(self._units[outcome.key], text))

    def _settle(self, key: str, entry: Artifact | Failure) -> None:
        """Keep the final result of a kernel."""
        kernel = self._units[key].kernel
        self.results[key] = entry
        if isinstance(entry, Artifact):
            cpu_s = _read_cost(entry)
            self._done_cpu_s += cpu_s
            self.batches.record_cost(key, cpu_s)
            record_cost_if_possible(self.shared.tiers.local, kernel, cpu_s)
        events.emit(events.Advanced(TASK, 1, kernel.slug))

    # Reports

    def _set_state(self, name: str, state: str, reason: str) -> None:
        if self.nodes[name].state != state:
            self.nodes[name] = replace(self.nodes[name], state=state, reason=reason)

    def _add_counts(self, name: str, **more: float) -> None:
        node = self.nodes[name]
        sums: dict[str, Any] = {key: getattr(node, key) + value for key, value in more.items()}
        self.nodes[name] = replace(node, **sums)

    def _estimate_remaining_s(self) -> float | None:
        """Expected remaining cost, divided by the speed of this run; before the first kernel, one CPU for each slot."""
        sent = [key for builder in self._builders.values() for key in builder.batch]
        left = self.batches.waiting_cpu_s + self.batches.sum_cpu_s(sent)
        elapsed = time.monotonic() - self._began
        pace = self._done_cpu_s / elapsed if self._done_cpu_s else float(len(self._builders))
        return left / pace if pace else None

    def _check_stalled(self) -> None:
        """Raise `ClusterError` if no node can build, now or for a long time."""
        if any(builder.reference is not None for builder in self._builders.values()):
            self._moved = time.monotonic()
            return
        idle = time.monotonic() - self._moved
        states = {node.state for name, node in self.nodes.items() if name in self._living}
        hopeless = states == {EXCLUDED}
        if not hopeless and idle <= self.patience_s:
            return
        raise ClusterError(
            f"no node of the cluster can build the {self.batches.waiting_count:,} kernels that are left; nodes: "
            f"{len(self._living)}, waited {idle:.0f} s of {self.patience_s:.0f} s. Last failure: "
            f"{self._last_failure or 'none'}. Add nodes with CPUs (ray start --address HOST:6379 --num-cpus N), and "
            "run the command again: kernels that are built are kept"
        )


def _read_cost(entry: Artifact | Failure) -> float:
    """The CPU seconds of a kernel's compilers; 0 for a failure, or if another program wrote the entry without them."""
    cost = entry.facts.get("cost")
    found = cost.get("cpu_s") if isinstance(cost, dict) else None
    return float(found) if isinstance(found, int | float) else 0.0


def _make_failure(unit: CompileJob, text: str) -> Failure:
    """A failure that no compiler reported, and that may not occur again."""
    return Failure(unit.key, f"{text}\n", {**unit.facts(), "errors": [text], "lasting": False})
