"""Every kind of document that is read: originals that are right, how they are changed, and how they are loaded."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import documents.mutated as change
import tilewright as tw
from tilewright.arch.load import DATA, load_file
from tilewright.base.digest import digest_text
from tilewright.base.errors import UnsupportedError
from tilewright.building import ck_cache
from tilewright.building.compile_costs import costs_file, read_costs
from tilewright.building.pack.manifest import read_manifest
from tilewright.building.store.local import Store
from tilewright.codegen.wrappers import read_kernel_folder
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.gemm.tile_engine import read_tile_engine, write_tile_engine
from tilewright.ops.kernel_set import dump_kernel_set, load_kernel_set
from tilewright.ops.problem_list import read_problems, to_csv, to_json
from tilewright.ops.problem_values import format_problem_value, list_all_fields
from tilewright.select.bundle import read_bundle
from tilewright.select.tuned import read_tuned, write_tuned

KERNEL = tw.kernel_of(
    tw.gemm.config(
        variant="standard",
        dtype="fp16",
        layout="rcr",
        block=(64, 64, 32),
        waves=(2, 2, 1),
        mma=(16, 16, 16),
        pipeline="compv3",
        scheduler="intrawave",
        epilogue="cshuffle",
    ),
    "gfx942",
)
PROBLEM = tw.gemm.Problem(m=64, n=128, k=256, dtype="fp16", layout="rcr")
KEYS = ("ab" * 16, "cd" * 16)
DIGEST = "0" * 32
REFUSED = "refused"  # what `load` gives where a reader tells of bad parts and goes on
SETS = (
    "fmha/preselected/attention_small",
    "gemm/preselected/fp16_rcr_latency",
    "grouped_conv/preselected/gfx950_forward",
)
_OPS = Path(tw.__file__).parent / "ops"


@dataclass(frozen=True)
class Kind:
    """A kind of document. `write` puts one into a folder, right (without a generator) or changed, and gives its bytes;
    `load` reads what is there."""

    write: Callable[[Path, Random | None], bytes]
    load: Callable[[Path], object]


def _put(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    return content


def _json(name: str, document: Callable[[], Any]) -> Callable[[Path, Random | None], bytes]:
    def write(folder: Path, random: Random | None) -> bytes:
        value = document()
        return _put(folder / name, change.changed_json(random, value) if random else json.dumps(value).encode())

    return write


def _lines(
    name: str, text: Callable[[Random | None], str], words: Callable[[Random, str], str]
) -> Callable[[Path, Random | None], bytes]:
    def write(folder: Path, random: Random | None) -> bytes:
        own = text(random)
        return _put(folder / name, change.changed_lines(random, own, words) if random else own.encode())

    return write


# Registries


def _registry() -> Any:
    failure = {"log": "error: no", "facts": {"errors": ["no"], "slug": KERNEL.slug}}
    entries = [{"slug": KERNEL.slug, "key": KEYS[0], "priority": 3, "failure": failure}]
    return {"schema": 2, "kernels": entries}


def _load_registry(folder: Path) -> None:
    registry = tw.Registry.load(folder / "registry.json", Store(folder / "store"))
    registry.to_json()
    try:
        registry.select(PROBLEM, "gfx942")
    except UnsupportedError:
        return


# Kernel sets and GPU files


def _any_set(random: Random | None) -> str:
    name = random.choice(SETS) if random else SETS[0]
    return (_OPS / f"{name}.toml").read_text(encoding="utf-8")


def _load_set(folder: Path) -> None:
    read = load_kernel_set(folder / "set.toml")
    dump_kernel_set(read)
    for _, _kernel in zip(range(2), read.kernels("gfx942"), strict=False):
        pass


def _any_arch(random: Random | None) -> str:
    name = random.choice(("gfx942", "gfx1201")) if random else "gfx942"
    return (DATA / f"{name}.toml").read_text(encoding="utf-8").replace(f'"{name}"', '"gfx99a"')


# Tuned tables and bundles


def _tuned() -> Any:
    rows = [
        {"kernel": KERNEL.slug, "problem": list_all_fields(PROBLEM) | {"m": m}, "us": us}
        for m, us in ((64, 3.5), (96, 2))
    ]
    return {"schema": 1, "tuned": rows}


def _load_tuned(folder: Path) -> None:
    write_tuned(read_tuned(folder / "tuned.json"), folder / "again.json")


@functools.cache
def _shipped_bundle() -> tuple[dict[str, Any], str]:
    """A bundle that ships, with two trees."""
    folder = next((_OPS / "grouped_conv" / "bundles").iterdir())
    head, *trees = (folder / "model-0.txt").read_text(encoding="utf-8").split("\nTree=")
    model = "".join([head, *(f"\nTree={tree}" for tree in trees[:2]), "\nend of trees\n"])
    return json.loads((folder / "bundle.json").read_text(encoding="utf-8")), model


def _write_manifest(folder: Path, random: Random | None) -> bytes:
    facts, model = _shipped_bundle()
    (folder / "model-0.txt").write_text(model, encoding="utf-8")
    return _json("bundle.json", lambda: facts | {"files": {"model-0.txt": digest_text(model)}})(folder, random)


def _write_model(folder: Path, random: Random | None) -> bytes:
    """A changed model under its right digest, so that it is looked at."""
    facts, model = _shipped_bundle()
    words = change.changed_right_side(change.ODD_WORDS)
    content = change.changed_lines(random, model, words) if random else model.encode()
    (folder / "model-0.txt").write_bytes(content)
    seen = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    (folder / "bundle.json").write_text(
        json.dumps(facts | {"files": {"model-0.txt": digest_text(seen)}}), encoding="utf-8"
    )
    return content


def _load_bundle(folder: Path) -> None:
    import numpy as np

    bundle = read_bundle(folder)
    rows = np.random.default_rng(1).normal(size=(3, len(bundle.features)))
    assert all(np.isfinite(forest.predict(rows)).all() for forest in bundle.forests)
    np.exp(sum(forest.reach for forest in bundle.forests))


# Lists of problems


def _changed_problems(suffix: str) -> Kind:
    ops = ("gemm", "grouped_conv", "fmha", "norm", "gemm_quant", "grouped_gemm", "topk", "moe_sorting")

    def write(folder: Path, random: Random | None) -> bytes:
        op = find_op(random.choice(ops) if random else ops[0])
        (folder / "op").write_text(op.name, encoding="utf-8")
        example = dict(op.example_problem)
        if suffix == "json":
            return _json("list.json", lambda: {"op": op.name, "problems": [example, example]})(folder, random)
        text = f"{','.join(example)}\n{','.join(format_problem_value(value) for value in example.values())}\n"
        return _lines("list.csv", lambda _: text, change.changed_cells(","))(folder, random)

    def load(folder: Path) -> None:
        op = find_op((folder / "op").read_text(encoding="utf-8"))
        problems = read_problems(op, folder / f"list.{suffix}")
        to_json(op, problems)
        to_csv(op, problems)
        for problem in problems:
            assert problem.flops >= 0

    return Kind(write, load)


MIOPEN = (
    "./bin/MIOpenDriver convfp16 -n 128 -c 256 -H 28 -W 28 -k 512 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 "
    "-F 1 -t 1 --pad_mode same\n# a remark\nconv --spatial_dim 3 --in_d 8\n"
)


# tile_engine and the sweep of gfx950

NAME = "gemm_fp16_rcr_compv4_cshuffle_intrawave_False_False_True_False_256x128x32_2x2x1_32x32x16"
TILED = {
    "split_k": 1,
    **{"m": 3840, "n": 4096, "k": 2048, "stride_a": 2048, "stride_b": 2048, "stride_c": 4096},
    **{"dtype_a": "fp16", "dtype_b": "fp16", "dtype_acc": "fp32", "dtype_c": "fp16"},
    **{"layout_a": "RowMajor", "layout_b": "ColumnMajor", "layout_c": "RowMajor", "structured_sparsity": False},
}
# 2 · 3840 · 4096 · 2048 operations and 64 MB in 0.12 ms.
FIGURES = {"latency(ms)": 0.12, "tflops(TFlops)": 536.87, "bandwidth(GB/s)": 533.03}


def _benchmark() -> Any:
    return {"kernel_results": [{"name": NAME, "problem": TILED, "perf_result": FIGURES}] * 2}


def _benchmark_csv(random: Random | None) -> str:
    if random and random.random() < 0.5:
        return f'name,problem,perf_result\n{NAME},"{TILED!r}","{FIGURES!r}"\n'
    header = ["rocm_version", "device_name", *TILED, "name", *FIGURES]
    cells = ["6.4", "gfx942", *TILED.values(), NAME, *FIGURES.values()]
    return f"{','.join(header)}\n{','.join(map(str, cells))}\n"


def _load_foreign(name: str, file: str, **options: Any) -> Callable[[Path], object]:
    def load(folder: Path) -> object:
        from tilewright.bench.sources import read_foreign

        found = read_foreign(name, folder / file, **options)
        return REFUSED if found.refused else found

    return load


def _configuration() -> Any:
    values = {key: getattr(KERNEL.config, key) for key in ("variant", "layout", "block", "waves", "mma", "pipeline")}
    values |= {
        key: getattr(KERNEL.config, key) for key in ("scheduler", "epilogue", "pad_m", "pad_n", "pad_k", "persistent")
    }
    return write_tile_engine(tw.gemm.space(dtype="fp16", **values))


def _conv_csv(_: Random | None) -> str:
    from tilewright.ops.grouped_conv.gfx950_times import COLUMNS

    return f"{','.join(COLUMNS)}\n0,1,64,64,1,8,8,3,3,1,1,1,1,0.99,16,64,64,compv3,10\n"


def _conv_benchmark_csv(_: Random | None) -> str:
    from tilewright.ops.grouped_conv.benchmark_times import COLUMNS

    name = "grouped_conv_bwd_data_bf16_2d_64x64x64_compv3"
    return f"{','.join(COLUMNS)}\n{name},0,1,64,64,1,8,8,3,3,1,1,1,1,0.01,4096\n"


# The build's own files that lie in folders of users


def _pack() -> Any:
    file = {"path": "lib/libp_gfx942.so", "size": 3, "blake2b": DIGEST}
    named = {"slug": KERNEL.slug, "op": "gemm", "symbol": KERNEL.symbol, "arch": "gfx942", "config": {}}
    return {
        **{"schema": 1, "kind": "tilewright-pack", "name": "p", "version": "1"},
        **{"libraries": {"gfx942": file}, "files": [file | {"path": "include/pack.h"}]},
        "kernels": [named | {"code_object": DIGEST, "resources": [{"vgprs": 1}]}],
    }


def _generated() -> Any:
    return {"schema": 1, "support": ["a.h"], "kernels": [{"file": "a.hpp", "arch": "gfx942"}]}


def _write_costs(folder: Path, random: Random | None) -> bytes:
    cost = {"slug": KERNEL.slug, "kind": "gemm gfx942", "cpu_s": 3.5}
    lines = [change.changed_json(random, cost) if random else json.dumps(cost).encode() for _ in range(3)]
    (folder / "store").mkdir(exist_ok=True)
    return _put(costs_file(Store(folder / "store")), b"\n".join(lines))


def _load_costs(folder: Path) -> object:
    costs = read_costs(Store(folder / "store"))
    assert all(0 <= cost <= 1e9 for cost in costs.by_slug.values())
    assert costs.mean is None or costs.mean >= 0
    return REFUSED if set(costs.by_slug) != {KERNEL.slug} else costs


def _write_slug(folder: Path, random: Random | None) -> bytes:
    text = KERNEL.slug
    if random:
        characters = list(text)
        for _ in range(random.choice((1, 2, 5))):
            characters[random.randrange(len(characters))] = random.choice([*"019afx-_.* /\0é٣", "9" * 5000, "\ud800"])
        text = "".join(characters)
    return _put(folder / "slug", text.encode("utf-8", "surrogatepass"))


def _load_slug(folder: Path) -> object:
    return parse_kernel((folder / "slug").read_bytes().decode("utf-8", "surrogatepass"))


def _write_measurements(folder: Path, random: Random | None) -> bytes:
    from tilewright.learn.measurements import Measurement, make_table, write_measurements
    from tilewright.ops.problem_values import dump_problem

    row = Measurement(op="gemm", arch="gfx942", kernel=KERNEL.slug, problem=dump_problem(PROBLEM), us=2.0, us_min=1.0)
    write_measurements(folder / "table.parquet", make_table([row]))
    raw = (folder / "table.parquet").read_bytes()
    return _put(folder / "table.parquet", change.changed_bytes(random, raw) if random else raw)


def _load_measurements(folder: Path) -> object:
    from tilewright.learn.read_times import read_times

    return read_times(folder / "table.parquet")


def digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


PLAIN_KINDS: Mapping[str, Kind] = {
    "registry": Kind(_json("registry.json", _registry), _load_registry),
    "kernel set": Kind(_lines("set.toml", _any_set, change.changed_right_side(change.ODD_TOML)), _load_set),
    "GPU file": Kind(
        _lines("gfx99a.toml", _any_arch, change.changed_right_side(change.ODD_TOML)),
        lambda folder: load_file(folder / "gfx99a.toml"),
    ),
    "tuned table": Kind(_json("tuned.json", _tuned), _load_tuned),
    "bundle's manifest": Kind(_write_manifest, _load_bundle),
    "bundle's model": Kind(_write_model, _load_bundle),
    "problems in JSON": _changed_problems("json"),
    "problems in CSV": _changed_problems("csv"),
    "commands of MIOpenDriver": Kind(
        _lines("list.txt", lambda _: MIOPEN, change.changed_cells(" ")),
        lambda folder: read_problems("grouped_conv", folder / "list.txt", "miopen_driver"),
    ),
    "tile_engine's results in JSON": Kind(
        _json("results.json", _benchmark), _load_foreign("tile_engine", "results.json", arch="gfx942")
    ),
    "tile_engine's results in CSV": Kind(
        _lines("results.csv", _benchmark_csv, change.changed_cells(",")),
        _load_foreign("tile_engine", "results.csv", arch="gfx942"),
    ),
    "tile_engine's configuration": Kind(
        _json("config.json", _configuration),
        lambda folder: read_tile_engine(folder / "config.json", dtype="fp16", layout="rcr"),
    ),
    "sweep of gfx950": Kind(
        _lines("sweep.csv", _conv_csv, change.changed_cells(",")), _load_foreign("conv_gfx950", "sweep.csv")
    ),
    "benchmark of convolutions": Kind(
        _lines("benchmark.csv", _conv_benchmark_csv, change.changed_cells(",")),
        _load_foreign("conv_benchmark", "benchmark.csv", arch="gfx950"),
    ),
    "pack's manifest": Kind(_json("manifest.json", _pack), read_manifest),
    "manifest of sources": Kind(_json("manifest.json", _generated), read_kernel_folder),
    "manifest of headers": Kind(_json("manifest.json", lambda: {"files": {"include": 3}}), ck_cache.read_tree),
    "costs": Kind(_write_costs, _load_costs),
    "kernel's name": Kind(_write_slug, _load_slug),
    "table of measurements": Kind(_write_measurements, _load_measurements),
}
