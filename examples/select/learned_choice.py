"""Correct the estimate with a learned model.

A bundle is a trained model in a folder. One for forward convolutions in bf16 on gfx950 comes with Tilewright and is
used automatically; `with_bundles()` without arguments selects by the estimate alone.
"""

import tilewright as tw

registry = tw.Registry.of("gfx950_forward", "gfx950")
by_estimate = registry.with_bundles()
differ = 0
for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
    problem = tw.grouped_conv.Problem(
        direction="forward", n=32, c=channels, k=channels, input_size=(size, size), filter_size=3, pad=1, dtype="bf16"
    )
    learned, estimated = (each.select(problem, built=False) for each in (registry, by_estimate))
    differ += learned.best.kernel != estimated.best.kernel
    for way, selection in (("learned", learned), ("estimate", estimated)):
        config, us = selection.best.kernel.config, selection.best.us
        print(f"{channels:3} channels, {way:8}: block {config.block!s:11} {config.pipeline}, {us:.1f} µs")
print("steps:", "; ".join(map(str, learned.steps)))
assert any(step.name == "learned" for step in learned.steps)
print(f"{differ} of 4 choices differ")
