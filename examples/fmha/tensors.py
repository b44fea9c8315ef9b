"""See which tensors an attention problem reads and writes.

The same function answers for every kind of attention: plain, packed, over pages, and the gradient. `run` takes the
inputs in this order.
"""

import tilewright as tw

same = {"dtype": "fp16", "batch": 2, "heads": 8, "kv_heads": 2, "hdim_q": 64}
problems = {
    "training": tw.fmha.Problem(family="forward", seqlen_q=100, mask="top_left", lse=True, **same),
    "its gradient": tw.fmha.Problem(family="backward", seqlen_q=100, mask="top_left", **same),
    "packed sequences": tw.fmha.Problem(family="forward", mode="group", seqlen_q=70, total_q=99, total_k=99, **same),
    "decoding": tw.fmha.Problem(family="forward", seqlen_q=1, seqlen_k=192, page_size=64, num_splits=4, **same),
}
for name, problem in problems.items():
    tensors = tw.fmha.OP.execution.tensors(problem)
    print(f"{name}:")
    for title, output in (("reads ", False), ("writes", True)):
        listed = (f"{each.name} {'×'.join(map(str, each.shape))}" for each in tensors if each.output == output)
        print(f"  {title}", ", ".join(listed))
assert [each.name for each in tensors if each.output] == ["o"]
