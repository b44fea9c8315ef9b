"""Link kernels into a pack for C and C++.

A pack is a folder with one library for each GPU, headers and a CMake package. It selects kernels as Python does and
needs neither Python nor a compiler.
"""

import tempfile

import tilewright as tw

kernels = tw.gemm.space(
    variant="standard", dtype="fp32", layout=["rrr", "rcr"], block=(32, 32, 16),
    waves=(2, 2, 1), mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave",
    epilogue="default", pad_m=True, pad_n=True, pad_k=True,
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    pack = tw.pack(tw.build(kernels, arch="gfx942"), f"{folder}/products", name="products")
    print(f"pack {pack.name} for {', '.join(pack.gpus)} with {len(pack.kernels)} kernels")
    for path in sorted(path for path in pack.folder.rglob("*") if path.is_file()):
        print(" ", path.relative_to(pack.folder))
    assert pack.library_path("gfx942").is_file()
