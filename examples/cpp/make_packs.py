"""Make the packs of these examples in two folders, `kernels` and `tuned`: python make_packs.py FOLDER."""

import sys
from pathlib import Path

import tilewright as tw

HERE = Path(__file__).parent


def make_packs(folder: Path) -> list[Path]:
    """Build the kernels, unless they are in the store, and link them."""
    registry = tw.build((HERE / "kernels.txt").read_text().split())
    assert not registry.failures
    # The second pack: kernels of one kind, with a table of measured times.
    few = registry.find(op="gemm", variant="standard", dtype="fp16").with_tuned(HERE / "tuned.json")
    packs = [
        tw.pack(registry, folder / "kernels", name="gallery"),
        tw.pack(few, folder / "tuned", name="gallery_tuned"),
    ]
    return [pack.folder for pack in packs]


if __name__ == "__main__":
    for made in make_packs(Path(sys.argv[1])):
        print(made)
