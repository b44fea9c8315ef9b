"""Rules on the numbers of a work-group's tile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from tilewright.ops.fmha.kind import HasBlock, find_kind, get_tile
from tilewright.ops.rule import Check, Enforcer, Rejection, Rule
from tilewright.ops.rule_forms import RuleGroup


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
            def check_tile(config: HasBlock, *others: object) -> Rejection | None:
                tile, length = get_tile(config), 3 * find_kind(config).gemm_count
                if not tile or any(len(getattr(config, name)) != length for name in lists):
                    return None
                return check(config, Tile(**tile), *others)

            return self.rule(code, slug, enforced_by, ("block", *reads), when)(check_tile)

        return make
