"""`tilewright build --cluster`: building on a Ray cluster, and the cost report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import is_given
from tilewright.cli.output import format_count, print_facts, print_heading, print_table

if TYPE_CHECKING:
    from tilewright.bench.build_cluster.report import ClusterReport, NodeReport
    from tilewright.registry.registry import Registry

HEADINGS = ("node", "host", "CPUs", "compiled", "hits", "failed", "sent again", "CPU s", "headers CPU s", "state")
NUMBERS = ("CPUs", "compiled", "hits", "failed", "sent again", "CPU s", "headers CPU s")


def check_cluster_options(ctx: click.Context, cluster: str | None) -> None:
    """Reject options that are for a build on this machine."""
    if cluster is None:
        return
    if is_given(ctx, "jobs"):
        raise InvalidValueError(
            "--jobs is for this machine only: on a cluster each node runs a compiler for each of its CPUs "
            "(ray start --num-cpus N; TILEWRIGHT_JOBS for --cluster local)"
        )
    if is_given(ctx, "trace"):
        raise InvalidValueError("--trace is for this machine only: a build on a cluster has a cost report instead")


def build_with_report(
    registry: Registry, cluster: str, limit_s: float, *, retry: bool
) -> tuple[Registry, ClusterReport]:
    """Build all kernels of a registry on a cluster."""
    from tilewright.bench.build_cluster.coordinator import build_on_cluster

    done = build_on_cluster(registry.kernels, address=cluster, limit_s=limit_s, retry=retry)
    return replace(registry, results=done.built.results, built=done.built), done.report


def print_report(report: ClusterReport) -> None:
    """Print the cost of a build: totals, and a row for each node."""
    print_heading("Cluster")
    print_facts(
        [
            ("shared store", report.shared_store),
            ("compiled", format_count(report.compiled, "kernel")),
            ("hits", format_count(report.hits, "kernel")),
            ("sent again", f"{format_count(report.sent_again, 'kernel')} of lost nodes"),
            ("CPU time", f"{report.cpu_s:,.1f} s on nodes, {report.header_cpu_s:,.1f} s of it for headers"),
            ("coordinator", f"{report.coordinator_cpu_s:,.1f} s of CPU time"),
        ]
    )
    if report.nodes:
        print_table(HEADINGS, map(_make_row, report.nodes), numbers=NUMBERS, title="Nodes")


def _make_row(node: NodeReport) -> tuple[str, ...]:
    counts = (node.cpus, node.compiled, node.hits, node.failed, node.sent_again)
    state = f"{node.state}: {node.reason}" if node.reason else node.state
    seconds = (f"{node.cpu_s:,.1f}", f"{node.header_cpu_s:,.1f}")
    return (node.node[:8], node.host, *(f"{count:,}" for count in counts), *seconds, state)
