"""Find out why a config is illegal, and which legal config is nearest.

`explain` has the verdict of every rule, with numbers. `suggest` proposes changes; it never makes them.
"""

import tilewright as tw

config = tw.gemm.config(
    variant="standard",
    dtype="fp16",
    layout="rcr",
    block=(256, 256, 64),
    waves=(2, 2, 1),
    mma=(32, 32, 16),
    pipeline="compv4",
    scheduler="intrawave",
    epilogue="cshuffle",
)
broken = [verdict.violation for verdict in tw.explain(config, "gfx942") if not verdict.passed]
for violation in broken:
    print(violation)

for proposal in tw.suggest(config, "gfx942", limit=3):
    changes = ", ".join(f"{field}: {was} → {now}" for field, (was, now) in proposal.changes.items())
    print("instead:", changes)
    assert all(verdict.passed for verdict in tw.explain(proposal.config, "gfx942"))
