"""Use the operators with `torch.compile` and `torch.export`.

Operators are registered with torch, so that a model stays one graph. Results and gradients are those of the model that
is not compiled.
"""

import torch

import tilewright as tw
import tilewright.torch as twt

same = {
    "dtype": "fp32", "block": (32, 32, 16), "waves": (2, 2, 1), "mma": (16, 16, 16),
    "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "default",
    "pad_m": True, "pad_n": True, "pad_k": True,
}  # fmt: skip
kernels = [
    tw.gemm.space(variant="standard", layout=["rcr", "rrr", "crr"], **same),
    tw.gemm.config(variant="multi_d", layout="rcr", num_d=1, elementwise="MultiDAdd", **same),
]
torch.manual_seed(0)
model = torch.nn.Sequential(twt.Linear(20, 8), torch.nn.ReLU(), twt.Linear(8, 4))
x = torch.randn(6, 20)

with tw.options(pool=kernels), twt.emulate("gfx942"):
    wanted = model(x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    exported = torch.export.export(model, (x,))
    compiled.sum().backward()
    again = exported.module()(x)

calls = [str(node.target) for node in exported.graph.nodes if "tilewright" in str(node.target)]
print("operators in the graph:", ", ".join(calls))
assert torch.equal(compiled, wanted) and torch.equal(again, wanted)
assert model[0].weight.grad is not None
