"""The code that runs on the nodes of a build cluster: a process for each CPU that builds batches of kernels."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import ClusterError
from tilewright.base.events import Event, Notice, add_listener
from tilewright.bench.build_cluster.handshake import BuilderInfo, Question, sign_challenge
from tilewright.bench.build_cluster.shared_kernels import call_remote, require_shared_store
from tilewright.bench.cluster.actor import upload_artifact
from tilewright.building.builder import build_compile_jobs
from tilewright.building.compile_job import CompileJob, make_compile_job, make_compile_jobs
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers, open_tiers
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.ops import parse_kernel


@dataclass(frozen=True)
class KernelOutcome:
    """The outcome of one kernel, by the key that the coordinator sent. `entry` is the key of its entry in the store.

    A failure comes with its log and facts: failures that the machine caused are in no store.
    """

    key: str
    entry: str
    built: bool
    log: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchResult:
    """The outcomes of a batch and its cost. `compiled` counts the kernels that were compiled, not found in a store."""

    outcomes: tuple[KernelOutcome, ...]
    compiled: int
    cpu_s: float
    header_cpu_s: float
    notices: tuple[str, ...]


class KernelBuilder:
    """Builds kernels on one CPU of a node, as a Ray actor. It uses the node's own store and the shared one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        knobs.set_variables(environment)

    @cached_property
    def _tiers(self) -> Tiers:
        """One object for the whole run: its claims on the shared store have one holder, which the coordinator knows."""
        return open_tiers()

    @cached_property
    def _toolchain(self) -> Toolchain:
        """Looked for once, as in any build: a look takes as long as a per cent of a batch."""
        return find_toolchain()

    def describe(self, question: Question) -> BuilderInfo:
        """Answer the coordinator's questions. Raises an error if the shared store or the toolchain cannot be used."""
        from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

        toolchain = self._toolchain
        remote = require_shared_store(self._tiers)
        return BuilderInfo(
            host=os.uname().nodename,
            holder=self._tiers.holder,
            version=__version__,
            toolchain=toolchain.identity(),
            ck_digest=toolchain.ck_digest,
            key=make_compile_job(parse_kernel(question.kernel), toolchain).key,
            sees_probe=call_remote(self._tiers, partial(remote.is_claimed, question.probe)),
            signature=sign_challenge(self._tiers.secret, question.challenge),
        )

    def build(self, batch: Sequence[tuple[str, str]], limit_s: float, retry: bool) -> BatchResult:
        """Build kernels, given by name and key, one compiler at a time, and upload them to the shared store."""
        before = _read_cpu_seconds()
        notices: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, Notice):
                notices.append(event.message)

        with add_listener(listen):
            units = _make_units(batch, self._toolchain)
            built = build_compile_jobs(units, jobs=1, tiers=self._tiers, limit_s=limit_s, retry=retry)
            outcomes = []
            for unit in units:
                entry = built.results[unit.kernel]
                if isinstance(entry, Artifact):
                    upload_artifact(entry, self._tiers)
                    outcomes.append(KernelOutcome(unit.key, entry.key, built=True))
                else:
                    outcomes.append(KernelOutcome(unit.key, entry.key, built=False, log=entry.log, facts=entry.facts))
        cpu_s = _read_cpu_seconds() - before
        return BatchResult(tuple(outcomes), built.compiled, cpu_s, built.warm_cpu_s, tuple(notices))


def _make_units(batch: Sequence[tuple[str, str]], toolchain: Toolchain) -> list[CompileJob]:
    """The compile jobs of a batch. An error if one has another key than at the coordinator."""
    units = list(make_compile_jobs([parse_kernel(name) for name, _ in batch], toolchain))
    for unit, (name, key) in zip(units, batch, strict=True):
        if unit.key != key:
            raise ClusterError(
                f"{name} has the key {unit.key} here and {key} at the coordinator: Tilewright's files or ops differ"
            )
    return units


def _read_cpu_seconds() -> float:
    """The CPU seconds of this process and of all processes that it started and that ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
