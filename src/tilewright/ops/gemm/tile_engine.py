"""Read and write the configuration JSON of CK's tile_engine.

That JSON has tile_m (block), warp_m (waves) and warp_tile_m (mma), separately for each dimension, and traits. Data
types, layout and element-wise operation are arguments of CK's builder scripts, so they are arguments here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.document_values import format_value
from tilewright.base.documents import FileProblems, convert_read_errors, read_json
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.declaration import STAR, expand_tiles, find_grid_columns
from tilewright.ops.fields import list_fields
from tilewright.ops.gemm.config import Config
from tilewright.ops.op import Op
from tilewright.ops.space import Space

SECTIONS = ("tile_config", "trait_config")
TILES = {"block": "tile", "waves": "warp", "mma": "warp_tile"}
TILE_KEYS = tuple(f"{prefix}_{x}" for prefix in TILES.values() for x in "mnk")
TRAIT_KEYS = ("pipeline", "scheduler", "epilogue", "pad_m", "pad_n", "pad_k", "persistent")
# tile_engine has builders for these variants. Its multi_d has two D tensors.
VARIANTS = ("standard", "preshuffle", "multi_d")
# The JSON does not contain these: each must have one value, which the caller gives when reading.
ARGUMENTS = ("variant", "layout", "elementwise", "num_d", "split_k")
RANGE_KEYS = ("min", "max", "step")


def read_tile_engine(
    source: Mapping[str, Any] | Path | str,
    *,
    dtype: str,
    layout: str,
    variant: str = "standard",
    elementwise: str = "PassThrough",
    num_d: int = 0,
    split_k: bool = False,
) -> Space:
    """The space that a tile_engine configuration describes. `source` is a file or its parsed JSON.

    Raises `FileFormatError`, which lists all problems of the file. tile_engine's own kernels can also split K: set
    `split_k` for that.
    """
    expand_dtype(dtype)
    choose("variant that tile_engine builds", variant, VARIANTS)
    if variant == "multi_d" and num_d == 0:
        raise InvalidValueError(
            "multi_d needs elementwise and num_d, which the JSON does not have; tile_engine's builder has 2 D tensors"
        )
    where, data = ("tile_engine configuration", source) if isinstance(source, Mapping) else (source, read_json(source))
    reader = _ConfigurationReader()
    with convert_read_errors(where):
        declared = reader.read(data, variant)
    reader.faults.raise_any(where)
    arguments = {
        "variant": variant,
        "dtype": dtype,
        "layout": layout,
        "elementwise": elementwise,
        "num_d": num_d,
        "split_k": split_k,
    }
    return Space(_get_op(), {**arguments, **declared})


def write_tile_engine(space: Space) -> dict[str, Any]:
    """The space as tile_engine's JSON. `InvalidValueError` lists everything that the JSON cannot express."""
    declared = space.declared
    faults = _find_inexpressible(declared)
    grids = {name: find_grid_columns(declared[name]) for name in TILES if _is_listed(declared, name)}
    faults += [
        f"{name}: its tiles are not all combinations, in order, of values per dimension"
        for name, columns in grids.items()
        if columns is None
    ]
    if faults:
        listing = "\n".join(f"  {fault}" for fault in faults)
        raise InvalidValueError(f"tile_engine's JSON cannot express this space:\n{listing}")
    tiles = {
        f"{TILES[name]}_{x}": {"values": column}
        for name, columns in grids.items()
        for x, column in zip("mnk", columns or (), strict=True)
    }
    values = {key: list(_get_values(declared, key)) for key in TRAIT_KEYS}
    result: dict[str, Any] = {
        "tile_config": tiles,
        "trait_config": {key: {"values": listed} for key, listed in values.items()},
        "k_block_per_cu": _get_values(declared, "blocks_per_cu")[0],
    }
    if declared["variant"] == ("preshuffle",):
        result["permute_n"] = _get_values(declared, "permute_n")[0]
    return result


def _get_op() -> Op:
    from tilewright.ops.gemm import OP  # noqa: PLC0415  (the package imports this folder's modules)

    return OP


def _get_values(declared: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The declared values of a field, or its default."""
    values: Sequence[Any] = declared.get(name, (list_fields(Config)[name].default,))
    return values


def _is_listed(declared: Mapping[str, Any], name: str) -> bool:
    return isinstance(declared.get(name), tuple)


def _find_inexpressible(declared: Mapping[str, Any]) -> list[str]:
    """The reasons why a space cannot be written, except for its tiles."""
    fields = list_fields(Config)
    faults = [
        f'{name}: "*" has different values on each GPU, but the JSON must list the values'
        for name, values in declared.items()
        if values == STAR
    ]
    if len(declared.get("dtype", ())) != 1:
        faults.append("dtype: needs one value, given by the shorthand dtype; the JSON has none")
    needed = [n for n in ("variant", "layout", *TILES, *TRAIT_KEYS) if fields[n].required]
    faults += [f"{name}: has no value" for name in needed if name not in declared]
    for name in (*ARGUMENTS, "blocks_per_cu", "permute_n"):
        if _is_listed(declared, name) and len(declared[name]) > 1:
            faults.append(f"{name}: has {len(declared[name])} values, the JSON can have only 1")
    variant = declared.get("variant", STAR)
    if variant != STAR and variant[0] not in VARIANTS:
        faults.append(f"variant: tile_engine builds {', '.join(VARIANTS)}, not {variant[0]}")
    if "permute_n" in declared and variant != ("preshuffle",):
        faults.append("permute_n: only the JSON of preshuffle has it")
    wordless = [name for name in ("vector", "wave_groups") if name in declared]
    faults += [f"{name}: the JSON cannot express it, leave it out" for name in wordless]
    return faults


class _ConfigurationReader:
    """Reads one configuration and collects its problems."""

    def __init__(self) -> None:
        self.faults = FileProblems()

    def read(self, data: object, variant: str) -> dict[str, Any]:
        permutes = variant == "preshuffle"
        known = (*SECTIONS, "k_block_per_cu", *(["permute_n"] if permutes else []))
        top = self._read_table("", data, known, required=SECTIONS)
        tiles = self._read_table("tile_config", top.get("tile_config", {}), TILE_KEYS, TILE_KEYS)
        traits = self._read_table("trait_config", top.get("trait_config", {}), TRAIT_KEYS, TRAIT_KEYS)
        declared: dict[str, Any] = {}
        for field, prefix in TILES.items():
            keys = [f"{prefix}_{x}" for x in "mnk"]
            columns = [self._read_extents(f"tile_config.{k}", field, tiles[k]) for k in keys if k in tiles]
            declared[field] = self.faults.try_call(f"tile_config.{prefix}_m", expand_tiles, field, columns)
        for key, value in traits.items():
            declared[key] = self._read_values(f"trait_config.{key}", key, value)
        declared["blocks_per_cu"] = self._read_value("k_block_per_cu", "blocks_per_cu", top.get("k_block_per_cu", 1))
        if permutes:
            declared["permute_n"] = self._read_value("permute_n", "permute_n", top.get("permute_n", False))
        return declared

    def _read_table(
        self, where: str, value: object, known: Sequence[str], required: Sequence[str]
    ) -> Mapping[str, Any]:
        """The known keys of an object. Unknown and missing keys are added to the problems."""
        if not isinstance(value, Mapping):
            self.faults.add(where, f"must be an object, got {format_value(value)}")
            return {}
        prefix = f"{where}." if where else ""
        for key in value:
            if key not in known:
                self.faults.add(f"{prefix}{key}", str(UnknownValueError("key", key, known)))
        for key in required:
            if key not in value:
                self.faults.add(f"{prefix}{key}", "missing")
        return {key: value[key] for key in known if key in value}

    def _read_value(self, where: str, field: str, value: object) -> Any:
        """One value of a field, checked by the field's type; None if it is invalid."""
        return self.faults.try_call(where, list_fields(Config)[field].kind.read, field, value)

    def _read_values(self, where: str, field: str, value: object) -> list[Any]:
        table = self._read_table(where, value, ("values",), required=("values",))
        listed = self._read_list(f"{where}.values", table["values"]) if "values" in table else []
        return [self._read_value(f"{where}.values.{i}", field, v) for i, v in enumerate(listed)]

    def _read_extents(self, where: str, field: str, value: object) -> list[int]:
        """The extents of one dimension: listed, or from min to max in steps."""
        is_range = isinstance(value, Mapping) and "values" not in value
        keys = RANGE_KEYS if is_range else ("values",)
        table = self._read_table(where, value, keys, required=keys)
        if is_range and len(table) == len(RANGE_KEYS):
            return self._expand_range(where, field, table)
        listed = self._read_list(f"{where}.values", table["values"]) if "values" in table else []
        return [v for i, v in enumerate(listed) if self._is_extent(f"{where}.values.{i}", field, v)]

    def _expand_range(self, where: str, field: str, table: Mapping[str, Any]) -> list[int]:
        checked = [self._is_extent(f"{where}.{key}", field, table[key]) for key in RANGE_KEYS]
        if not all(checked):
            return []
        least, most, step = (table[key] for key in RANGE_KEYS)
        if least > most:
            self.faults.add(where, f"min {least} is above max {most}: no value is between them")
        return list(range(least, most + 1, step))

    def _is_extent(self, where: str, field: str, value: object) -> bool:
        """Whether a number can be an extent of the tile. If not, it is added to the problems."""
        most = list_fields(Config)[field].kind.most  # type: ignore[attr-defined]
        if type(value) is int and 1 <= value <= most:
            return True
        self.faults.add(where, f"must be an integer from 1 to {most}, got {format_value(value)}")
        return False

    def _read_list(self, where: str, value: object) -> list[Any]:
        if isinstance(value, list) and value:
            return value
        self.faults.add(where, f"must be a list of at least 1 value, got {format_value(value)}")
        return []
