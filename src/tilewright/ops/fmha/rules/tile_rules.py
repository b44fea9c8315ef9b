"""Rules on the numbers of a work-group's tile, and the facts about kinds of kernels that rules need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

from tilewright.ops.fmha.families import BATCH_PREFILL, FAMILIES, FORWARD, USED, HasBlock, get_tile
from tilewright.ops.rule import Check, Enforcer, Rule
from tilewright.ops.rule_forms import RuleGroup


@dataclass(frozen=True, slots=True)
class KindFacts:
    """The facts about a kind: its labels of a block, its number of GEMMs, its pipelines, and its optional fields."""

    name: str
    block: tuple[str, ...]
    gemms: int
    pipelines: tuple[str, ...]
    fields: tuple[str, ...]
    group_pads: tuple[str, ...]  # those without which it would read beyond a sequence of a group
    lists_tokens: bool  # finds each key in a list of one-token pages

    def has_field(self, name: str) -> bool:
        return name in self.fields


def _collect_facts(name: str) -> KindFacts:
    family, fields = FAMILIES[name], USED[name]
    pads = tuple(pad for pad in ("pad_q", "pad_k") if pad in fields and (name, pad) != (FORWARD, "pad_q"))
    return KindFacts(name, family.block, family.gemms, family.pipelines, fields, pads, name == BATCH_PREFILL)


_KINDS = {name: _collect_facts(name) for name in FAMILIES}


class HasFamily(Protocol):
    """A config, or a part of one, with a family."""

    @property
    def family(self) -> str: ...


def find_kind(config: HasFamily) -> KindFacts:
    """The facts about the kind of a config's kernel."""
    return _KINDS[config.family]


class Tile(SimpleNamespace):
    """The numbers of a block by name, of which each kind has some."""

    m0: int
    n0: int
    k0: int
    n1: int
    k1: int
    k2: int
    k3: int
    k4: int
    hdim_q: int
    hdim_v: int
    threads: int

    def replace(self, **numbers: int) -> tuple[int, ...]:
        """The block with other numbers under some names."""
        return tuple({**vars(self), **numbers}.values())


class TileRules(RuleGroup):
    """Rules of configs with the same values, some of which read the numbers of a block by name."""

    def tile_rule(
        self,
        code: str,
        slug: str,
        enforced_by: Enforcer,
        reads: Sequence[str] = (),
        when: Mapping[str, object] | None = None,
    ) -> Callable[[Check], Rule]:
        """Make a function `check(config, tile, arch)` a rule of the group. It reads the block.

        The rule does not apply where block, waves or mma, if it reads them, do not have the kind's length: that is
        rejected by T207 and T208.
        """
        lists = [name for name in ("waves", "mma") if name in reads]

        def make(check: Check) -> Rule:
            @functools.wraps(check)
            def check_tile(config: HasBlock, *others: object) -> object:
                tile, length = get_tile(config), 3 * find_kind(config).gemms
                if not tile or any(len(getattr(config, name)) != length for name in lists):
                    return None
                return check(config, Tile(**tile), *others)

            return self.rule(code, slug, enforced_by, ("block", *reads), when)(check_tile)

        return make
