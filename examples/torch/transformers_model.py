"""Run a model of Transformers with Tilewright's attention.

`register_attention` adds the implementation "tilewright" to Transformers. Causal masks, windows and shared heads are
computed by the kernels. This Llama has one layer, with random weights.
"""

import torch
import transformers

import tilewright as tw
import tilewright.torch as twt

kernel = tw.fmha.config(
    family="forward", mode="batch", dtype="fp16", pipeline="qr", pads="lengths",
    mask_form="any", lse=True, tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
twt.register_attention()
config = transformers.LlamaConfig(
    hidden_size=64, intermediate_size=96, num_hidden_layers=1, vocab_size=80,
    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    attn_implementation="tilewright",
)  # fmt: skip
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(config).half().eval()
tokens = torch.arange(48).reshape(2, 24) % 80

with torch.no_grad():
    with tw.options(pool=[kernel]), twt.emulate("gfx942"):
        logits = model(input_ids=tokens, use_cache=False).logits
    model.set_attn_implementation("eager")
    expected = model.float()(input_ids=tokens, use_cache=False).logits

error = ((logits.float() - expected).norm() / expected.norm()).item()
print(f"logits {tuple(logits.shape)}, relative error {'below' if error < 0.01 else 'above'} 1 %")
assert error < 0.01
