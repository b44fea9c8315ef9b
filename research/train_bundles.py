"""Train the bundles that come with Tilewright anew, from the public measurements beside the repository.

    python -m research.train_bundles            write them
    python -m research.train_bundles --check    exit code 1 if what would be written differs from what is there

Recipes are fixed here, with their seeds: the same measurements, estimates and version of LightGBM give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from research import conv, conv_data
from tilewright.base.digest import digest_tree
from tilewright.learn.bundle_writer import BundleInfo, collect_problem_values, format_held_out, write_bundle
from tilewright.learn.evaluation import evaluate_config
from tilewright.learn.training import train

OPS = Path(__file__).resolve().parents[1] / "src" / "tilewright" / "ops"


def conv_forward(folder: Path) -> None:
    """Forward convolutions in bf16 on gfx950: 230 distinct problems × 13 kernels, medians of 6,930 timings."""
    data = conv_data.load().data
    found = evaluate_config(data, conv.KERNELS)
    model = train(data, conv.KERNELS)
    about = BundleInfo(
        data="/".join(conv_data.FILE),
        where=collect_problem_values(data),
        held_out=format_held_out(found),
    )
    write_bundle(folder, model, data, about)


BUNDLES: Mapping[str, Callable[[Path], None]] = {"grouped_conv/bundles/forward_bf16_gfx950": conv_forward}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is there instead of writing")
    arguments = parser.parse_args()
    stale = 0
    for place, make in BUNDLES.items():
        folder = OPS / place
        if not arguments.check:
            make(folder)
            size = sum(file.stat().st_size for file in folder.iterdir())
            print(f"{folder.relative_to(OPS.parents[2])}: {size / 1000:,.0f} kB")
            continue
        with tempfile.TemporaryDirectory() as temporary:
            made = Path(temporary) / folder.name
            make(made)
            same = folder.is_dir() and digest_tree(made) == digest_tree(folder)
        print(f"{place}: {'as it is made' if same else 'stale: run research/train_bundles.py'}")
        stale += not same
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
