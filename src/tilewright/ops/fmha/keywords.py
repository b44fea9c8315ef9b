"""The keywords of `fmha.space` and `fmha.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import NumbersValue, Several

FamilyName: TypeAlias = (
    Literal[
        "forward",
        "pagedkv",
        "splitkv",
        "combine",
        "appendkv",
        "batch_prefill",
        "dot_do_o",
        "dq_dk_dv",
        "convert_dq",
    ]
    | str
)
ModeName: TypeAlias = Literal["batch", "group"] | str
DtypeName: TypeAlias = Literal["fp16", "bf16", "fp32", "fp8", "bf8", "fp8fp16", "fp8bf16", "fp8fp32"] | str
PipelineName: TypeAlias = (
    Literal[
        "qr",
        "qr_async",
        "qr_async_trload",
        "qr_whole_k",
        "qs",
        "v3",
        "qr_pagedkv",
        "qr_nwarp_sshuffle",
        "combine",
        "appendkv",
        "dot_do_o",
        "kr_ktr_vr",
        "kr_ktr_vr_iglp",
        "trload_kr_ktr_vr",
        "trload_qr_qtr_dor",
        "convert_dq",
    ]
    | str
)
MaskFormName: TypeAlias = Literal["none", "any", "causal", "window"] | str
BiasName: TypeAlias = Literal["none", "elementwise", "alibi"] | str
VLayoutName: TypeAlias = Literal["row", "col"] | str
RotaryName: TypeAlias = Literal["none", "interleaved", "half"] | str
KvLayoutName: TypeAlias = Literal["linear", "vectorised"] | str
PageLookupName: TypeAlias = Literal["list", "table"] | str


class FmhaConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    family: FamilyName
    mode: ModeName
    dtype: DtypeName
    pipeline: PipelineName
    block: NumbersValue
    waves: NumbersValue
    mma: NumbersValue
    pad_q: bool
    pad_k: bool
    pad_hdim_q: int
    pad_hdim_v: int
    mask_form: MaskFormName
    sink: int
    bias: BiasName
    lse: bool
    soft_cap: bool
    dropout: bool
    store_randval: bool
    static_quant: bool
    v_layout: VLayoutName
    paged: bool
    uneven_splits: bool
    merge_heads: bool
    log_max_splits: int
    rotary: RotaryName
    bias_gradient: bool
    deterministic: bool
    max_seqlen_q: int
    skip_min_seqlen_q: bool
    blocks_per_cu: int
    page_size: int
    kv_layout: KvLayoutName
    page_lookup: PageLookupName
    tile: str
    pads: str


class FmhaSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    family: Several[FamilyName]
    mode: Several[ModeName]
    dtype: Several[DtypeName]
    pipeline: Several[PipelineName]
    block: Several[NumbersValue]
    waves: Several[NumbersValue]
    mma: Several[NumbersValue]
    pad_q: Several[bool]
    pad_k: Several[bool]
    pad_hdim_q: Several[int]
    pad_hdim_v: Several[int]
    mask_form: Several[MaskFormName]
    sink: Several[int]
    bias: Several[BiasName]
    lse: Several[bool]
    soft_cap: Several[bool]
    dropout: Several[bool]
    store_randval: Several[bool]
    static_quant: Several[bool]
    v_layout: Several[VLayoutName]
    paged: Several[bool]
    uneven_splits: Several[bool]
    merge_heads: Several[bool]
    log_max_splits: Several[int]
    rotary: Several[RotaryName]
    bias_gradient: Several[bool]
    deterministic: Several[bool]
    max_seqlen_q: Several[int]
    skip_min_seqlen_q: Several[bool]
    blocks_per_cu: Several[int]
    page_size: Several[int]
    kv_layout: Several[KvLayoutName]
    page_lookup: Several[PageLookupName]
    tile: Several[str]
    pads: Several[str]
