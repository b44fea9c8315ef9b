"""Run by test_tenth_kind.py with a copy of the package that has one more kind: prints the results as JSON."""

from __future__ import annotations

import json

import tilewright as tw
from tilewright.codegen.render import render
from tilewright.ops.rule import find_violations

FIELDS = {"family": "dot_o_o", "mode": "batch", "dtype": "fp16", "pipeline": "dot_do_o", "pad_q": True}
OP = tw.fmha.OP
arch = tw.load("gfx942")
kernel = OP.make_kernel(tw.fmha.config(**FIELDS, block="64x64", pad_hdim_v=8), "gfx942")
illegal = tw.fmha.config(**FIELDS, block="64x64x31", dropout=True)
problems = OP.execution.trials(kernel.config, arch)
(artifact,) = tw.build([kernel.config], arch="gfx942").artifacts.values()
checks = tw.verify(kernel, artifact, tw.Device("emulated:gfx942"), problems)
space = tw.fmha.space(
    family="*", mode="batch", dtype="fp16", pipeline="dot_do_o", block=["64x64", "128x64"], pad_q=True
)
print(
    json.dumps(
        {
            "source": render(kernel).text,
            "files": sorted(render(kernel).files),
            "kinds": [kind.name for kind in OP.kinds],
            "violations": sorted(violation.code for violation in find_violations(OP.rules, illegal, arch)),
            "members": sorted(each.config.family for each in space.iter("gfx942")),
            "verdicts": [check.verdict for check in checks],
        }
    )
)
