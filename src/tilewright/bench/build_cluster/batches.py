"""The kernels that wait for a node of a build cluster, and the batches in which nodes get them. Independent of Ray."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.building.builder import MOST_CLAIMED_PER_JOB
from tilewright.building.compile_costs import USUAL_CPU_S

# CPU seconds of a batch. A call of the build engine costs 0.2 s besides its compilers, less than a per cent of this; a
# lost node costs the kernel that it was compiling, and this much at most waits in its batch for a new node.
BATCH_CPU_S = 30.0
# A share of the remaining work: half of what each slot would get, so that all slots end at about the same time.
SHARE = 2
# Losses after which a kernel counts as not built: it was alone at each of these nodes when they were lost.
MOST_LOSSES = 3
# Attempts for a kernel whose compiler was killed or whose disk was full: neither proves anything about the kernel.
MOST_ATTEMPTS = 2


@dataclass(frozen=True)
class WaitingKernel:
    """A kernel to build: its key, the group of kernels that share precompiled headers, and its expected cost.

    The cost is None if no similar kernel was built on this machine.
    """

    key: str
    group: str
    cpu_s: float | None


@dataclass
class KernelBatches:
    """The waiting kernels. A node stays with one group while it can, because each group needs its own headers."""

    kernels: Mapping[str, WaitingKernel]
    _waiting: dict[str, list[str]] = field(default_factory=dict)  # by group, the most expensive first
    _again: list[str] = field(default_factory=list)  # of lost nodes: sent first, each alone
    _group_of_node: dict[str, str] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _attempts: Counter[str] = field(default_factory=Counter)
    _measured: dict[str, tuple[int, float]] = field(default_factory=dict)  # by group: kernels and their CPU seconds

    def __post_init__(self) -> None:
        grouped: defaultdict[str, list[str]] = defaultdict(list)
        for kernel in sorted(self.kernels.values(), key=lambda kernel: -self.estimate_cpu_s(kernel.key)):
            grouped[kernel.group].append(kernel.key)
        self._waiting.update(grouped)

    @property
    def waiting_count(self) -> int:
        """The number of kernels that wait."""
        return len(self._again) + sum(map(len, self._waiting.values()))

    def record_cost(self, key: str, cpu_s: float) -> None:
        """Record the cost of a built kernel, from which the cost of others in its group is estimated."""
        count, total = self._measured.get(self.kernels[key].group, (0, 0.0))
        self._measured[self.kernels[key].group] = (count + 1, total + cpu_s)

    def estimate_cpu_s(self, key: str) -> float:
        """The expected cost of a kernel: its own, else the mean of its group in this build, else the usual one."""
        kernel = self.kernels[key]
        if kernel.cpu_s is not None:
            return kernel.cpu_s
        count, total = self._measured.get(kernel.group, (0, 0.0))
        return total / count if count else USUAL_CPU_S

    def sum_cpu_s(self, keys: Iterable[str]) -> float:
        """The expected CPU seconds of some kernels."""
        return sum(map(self.estimate_cpu_s, keys))

    @property
    def waiting_cpu_s(self) -> float:
        """The expected CPU seconds of all waiting kernels."""
        return self.sum_cpu_s(self._again) + sum(map(self.sum_cpu_s, self._waiting.values()))

    def take(self, node: str, slots: int) -> tuple[str, ...]:
        """Take the next batch for a node of a cluster with `slots` slots; empty if no kernel waits."""
        if self._again:
            return (self._again.pop(0),)
        group = self._choose_group(node)
        if group is None:
            return ()
        self._group_of_node[node] = group
        most = min(BATCH_CPU_S, self.waiting_cpu_s / (SHARE * max(slots, 1)))
        listed = self._waiting[group]
        batch = [listed.pop(0)]
        while listed and len(batch) < MOST_CLAIMED_PER_JOB and self.sum_cpu_s([*batch, listed[0]]) <= most:
            batch.append(listed.pop(0))
        return tuple(batch)

    def take_back_lost(self, keys: Iterable[str]) -> list[str]:
        """Let the kernels of a lost node wait again. Return those that are given up after `MOST_LOSSES` losses."""
        lost = list(keys)
        if len(lost) == 1:  # of several, it is unknown which one was the cause
            self._losses[lost[0]] += 1
        given_up = [key for key in lost if self._losses[key] >= MOST_LOSSES]
        self._again += [key for key in lost if key not in given_up]
        return given_up

    def take_back_failed(self, key: str) -> bool:
        """Let a kernel wait again whose build failed because of its machine; False after `MOST_ATTEMPTS` attempts."""
        self._attempts[key] += 1
        if self._attempts[key] >= MOST_ATTEMPTS:
            return False
        self._again.append(key)
        return True

    def forget_node(self, node: str) -> None:
        """Forget a lost node."""
        self._group_of_node.pop(node, None)

    def _choose_group(self, node: str) -> str | None:
        """The node's own group; else the one with the fewest nodes, and of these the one with the most work."""
        left = [group for group, listed in self._waiting.items() if listed]
        own = self._group_of_node.get(node)
        if own in left:
            return own
        nodes = Counter(self._group_of_node.values())
        return min(left, key=lambda group: (nodes[group], -self.sum_cpu_s(self._waiting[group])), default=None)
