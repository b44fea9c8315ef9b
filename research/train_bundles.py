"""Train the bundles that Tilewright ships, from the public measurements in ../shared/data.

    python -m research.train_bundles            write the bundles
    python -m research.train_bundles --check    write nothing; exit code 1 if a bundle is stale

Training configs and seeds are fixed here: the same measurements, estimates and LightGBM version give the same bytes.
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


def train_conv_forward(folder: Path) -> None:
    """Train on forward convolutions in bf16 on gfx950: 230 problems × 13 kernels, medians of 6,930 timings."""
    data = conv_data.load().data
    found = evaluate_config(data, conv.KERNELS)
    model = train(data, conv.KERNELS)
    about = BundleInfo(
        data="/".join(conv_data.FILE),
        where=collect_problem_values(data),
        held_out=format_held_out(found),
    )
    write_bundle(folder, model, data, about)


BUNDLES: Mapping[str, Callable[[Path], None]] = {"grouped_conv/bundles/forward_bf16_gfx950": train_conv_forward}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the shipped bundles instead of writing")
    arguments = parser.parse_args()
    stale = 0
    for name, make in BUNDLES.items():
        folder = OPS / name
        if not arguments.check:
            make(folder)
            size = sum(file.stat().st_size for file in folder.iterdir())
            print(f"{folder.relative_to(OPS.parents[2])}: {size / 1000:,.0f} kB")
            continue
        with tempfile.TemporaryDirectory() as temporary:
            made = Path(temporary) / folder.name
            make(made)
            same = folder.is_dir() and digest_tree(made) == digest_tree(folder)
        print(f"{name}: {'up to date' if same else 'stale: run `make bundles`'}")
        stale += not same
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
