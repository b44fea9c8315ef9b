"""Write your own kernel set as a TOML file.

A set has a name and spaces. Its file can be passed wherever kernels are expected: to `build`, `sweep`, `options`.
"""

import tempfile
from pathlib import Path

import tilewright as tw

TEXT = """
op = "gemm"
name = "mine"
doc = "Two blocks, with and without padding."
archs = ["gfx942", "gfx950"]

[[space]]
variant = "standard"
dtype = "fp16"
layout = "rcr"
block = ["128x128x64", "256x128x64"]
waves = "2x2x1"
mma = "32x32x16"
pipeline = "compv3"
scheduler = "intrawave"
epilogue = "cshuffle"
pad_k = [false, true]
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "mine.toml")
    path.write_text(TEXT)
    print(tw.load_kernel_set(path).report("gfx942"))
    registry = tw.Registry.of(str(path), "gfx942")
    path.write_text(TEXT.replace("pipeline", "pipelin"))
    try:
        tw.load_kernel_set(path)
    except tw.errors.FileFormatError as error:
        mistake = error.problems[0].what

print(repr(registry))
print(mistake.partition(" Known")[0])
assert len(registry) == 4
