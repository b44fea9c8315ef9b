"""The schema of a pack's manifest: types and patterns of its values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# No part starts with a dot, so that no path leads out of the pack.
Path = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Gpu = Annotated[str, Field(pattern=r"^gfx[0-9a-f]+$")]
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Size = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _File(_Strict):
    path: Path
    size: Size
    blake2b: Digest


class _Kernel(_Strict):
    slug: str
    op: str
    symbol: Symbol
    arch: Gpu
    config: dict[str, Any]
    code_object: Digest
    resources: list[dict[str, Any]]


class ManifestFile(_Strict):
    """The whole file. The schema number is that of `tilewright.building.pack.manifest`."""

    model_config = ConfigDict(extra="forbid", title="pack manifest")

    schema_number: Literal[1] = Field(alias="schema")
    kind: Literal["tilewright-pack"]
    name: Symbol
    version: str
    libraries: dict[Gpu, _File]
    files: list[_File]
    kernels: list[_Kernel]
