"""Attention kernels of CK's fmha example: its generate.py writes a file for each name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.parity.unit import Unit, make_kernel
from tilewright.base.errors import ToolchainError

EXAMPLE = "example/ck_tile/01_fmha"
# By the beginning of a name, the longest first: the family, and the generator's name of it.
FAMILIES = {
    "fmha_fwd_splitkv_combine": ("combine", "fwd_splitkv"),
    "fmha_fwd_splitkv": ("splitkv", "fwd_splitkv"),
    "fmha_fwd_appendkv": ("appendkv", "fwd_appendkv"),
    "fmha_fwd_pagedkv": ("pagedkv", "pagedkv_prefill"),
    "fmha_batch_prefill": ("batch_prefill", "batch_prefill"),
    "fmha_bwd_dot_do_o": ("dot_do_o", "bwd"),
    "fmha_bwd": ("dq_dk_dv", "bwd"),
    "fmha_fwd": ("forward", "fwd"),
}
# For an API with several kinds of kernels, a filter has a pattern for each, which must match together.
FILTERS = {"combine": "*@{}", "splitkv": "*@{}", "dot_do_o": "{}@*@*_nmask_ndropout_nd*", "dq_dk_dv": "*@*@{}"}
# The pipeline of a family whose names do not contain it.
PIPELINES = {
    "combine": "combine",
    "appendkv": "appendkv",
    "dot_do_o": "dot_do_o",
    "dq_dk_dv": "kr_ktr_vr",
}
# A smaller head of a problem is a multiple of this, by pipeline; CK's names contain only whether there is one.
PADS = {"qr_async": 8, "dot_do_o": 8}
# Words of a name that turn a field on; with an n in front they turn it off.
WORDS: dict[str, dict[str, Any]] = {
    "logits": {"soft_cap": True},
    "bias": {"bias": "elementwise"},
    "alibi": {"bias": "alibi"},
    "mask": {"mask_form": "any"},
    "lse": {"lse": True},
    "dropout": {"dropout": True},
    "skip": {"skip_min_seqlen_q": True},
    "squant": {"static_quant": True},
    "pagedkv": {"paged": True},
    "inter": {"rotary": "interleaved"},
    "half": {"rotary": "half"},
    "dbias": {"bias_gradient": True},
    "deterministic": {"deterministic": True},
    "storerandval": {"store_randval": True},
}
# The settings of CK's build file that change code; the flags for denormal numbers are not among Tilewright's.
FLAGS = ("-DCK_TILE_FMHA_FWD_FAST_EXP2=1",)


@dataclass(frozen=True)
class AttentionCase:
    """A name of CK's generator, and fields of ours that its name does not contain."""

    gpu: str
    name: str
    fields: tuple[tuple[str, Any], ...] = ()
    reason: str = ""


_D32 = "b128x64x16x32x32x32_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
_SPLIT = "b32x64x16x32x32x32_r2x1x1_r2x1x1_w16x16x16_w16x16x16"
_GRADIENT = "b32x128x32x32x32x32x64x32x32_r1x4x1_r4x1x1_r2x2x1_w16x16x32_w16x16x16_o1_maxq0"
_PLAIN = "nskip_nsquant_ntrload_gfx9"
_OWN_ENTRY = "the arguments have a member more here, for gradients of sequences without queries"
_APPENDED = "fmha_fwd_appendkv_d64_fp16_b64x64x64x64_vr"
_SUMMED = "fmha_bwd_dot_do_o_d64_fp16_b64"
_JOINED = "fmha_fwd_splitkv_combine_d64_fp16_batch_b32_unused_ps"
CASES = (
    *(
        AttentionCase("gfx942", f"{_APPENDED}_{words}_gfx9")
        for words in ("psk", "psk_pagedkv", "pskd_half", "pskd_half_pagedkv", "pskd_inter", "pskd_inter_pagedkv")
    ),
    AttentionCase("gfx90a", "fmha_fwd_appendkv_d64_bf16_b64x64x64x64_vr_psk_gfx9"),
    AttentionCase("gfx90a", "fmha_fwd_appendkv_d64_bf16_b64x64x64x64_vr_psskddv_half_gfx9"),
    *(
        AttentionCase("gfx942", f"{_SUMMED}_{words}_gfx9")
        for words in ("batch_o2_npad", "batch_o2_ps", "batch_o2_psdv", "group_o2_ps")
    ),
    # One of them: every file of the generator has a template of the same name.
    AttentionCase("gfx942", f"{_JOINED}_lse_nsquant_gfx9", (("log_max_splits", 3),)),
    AttentionCase("gfx942", f"fmha_fwd_d32_fp16_batch_{_D32}_qr_vr_npad_nlogits_bias_nmask_nlse_ndropout_{_PLAIN}"),
    AttentionCase("gfx942", f"fmha_fwd_d32_bf16_batch_{_D32}_qr_vr_psskddv_nlogits_bias_mask_lse_ndropout_{_PLAIN}"),
    AttentionCase("gfx942", f"fmha_fwd_d32_fp16_batch_{_D32}_qr_vr_psskddv_nlogits_bias_nmask_lse_dropout_{_PLAIN}"),
    AttentionCase(
        "gfx90a", f"fmha_fwd_d32_fp16_batch_{_D32}_qr_async_vr_psddv_nlogits_alibi_mask_lse_ndropout_{_PLAIN}"
    ),
    AttentionCase(
        "gfx942",
        f"fmha_fwd_splitkv_d32_fp16_batch_{_SPLIT}_qr_vr_pssk_nlogits_nbias_mask_lse_nsquant_pagedkv_gfx9",
        (("uneven_splits", True), ("lse", False)),
    ),
    AttentionCase(
        "gfx90a",
        f"fmha_bwd_d32_fp16_batch_{_GRADIENT}_npad_nbias_ndbias_nmask_ndropout_ndeterministic_ntrload_gfx9",
        # CK's selector takes this pipeline unless heads are padded by single elements.
        (("pipeline", "kr_ktr_vr_iglp"), ("blocks_per_cu", 0)),
        _OWN_ENTRY,
    ),
)


def list_units(tree: Path, work: Path) -> Iterator[Unit]:
    """List the kernels with CK's sources, which its generator writes to the folder `work`."""
    for case in CASES:
        family, api = _find_family(case.name)
        fields = {**parse_name(case.name), **dict(case.fields)}
        source = generate(tree / EXAMPLE, family, api, case.name, work)
        kernel = make_kernel("fmha", case.gpu, **fields)
        text = rename_symbols(source.read_text(encoding="utf-8"), kernel.digest)
        folders = (source.parent, tree / EXAMPLE)
        yield Unit(kernel, case.name, (), text, folders, FLAGS, case.reason)


def rename_symbols(text: str, suffix: str) -> str:
    """Give the types of a source a name of their own: the generator numbers them by 0 in every file."""
    return re.sub(r"\b(\w+)_0\b", rf"\1_{suffix}", text)


def generate(example: Path, family: str, api: str, name: str, work: Path) -> Path:
    """Let CK's generator write the file of one kernel."""
    pattern = FILTERS.get(family, "{}").format(name.removesuffix("_gfx9"))
    command = [sys.executable, "generate.py", "--targets", "gfx9", "--api", api, "--filter", pattern]
    subprocess.run([*command, "--output_dir", str(work / "fmha")], cwd=example, check=True, capture_output=True)
    found = list((work / "fmha").rglob(f"{name}.cpp"))
    if not found:
        raise ToolchainError(f"{example / 'generate.py'} has no kernel {name}")
    return found[0]


def _find_family(name: str) -> tuple[str, str]:
    return next(found for beginning, found in FAMILIES.items() if name.startswith(f"{beginning}_d"))


def parse_name(name: str) -> dict[str, Any]:
    """Parse a name of CK's generator into the fields of a kernel."""
    family, _ = _find_family(name)
    fields: dict[str, Any] = {"family": family, "mode": "batch", "waves": (), "mma": ()}
    if family in PIPELINES:
        fields["pipeline"] = PIPELINES[family]
    head = re.search(r"_d(?P<hdim>\d+)_(?P<dtype>fp16|bf16|fp8|fp32)_", name)
    assert head is not None
    fields["dtype"] = head["dtype"]
    for word in _split_words(name[head.end() :]):
        fields.update(_parse_word(word, family, int(head["hdim"]), fields))
    return fields


def _split_words(text: str) -> list[str]:
    """Split a name at underscores, but not inside the name of a pipeline."""
    return re.sub("qr_(async|pagedkv)", r"qr-\1", text).split("_")


def _parse_word(word: str, family: str, hdim: int, fields: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = WORDS.get(word, {})
    if word in ("batch", "group"):
        parsed = {"mode": word}
    elif word.startswith("qr"):
        parsed = {"pipeline": word.replace("-", "_")}
    elif match := re.fullmatch(r"b((?:\d+x)*\d+)", word):
        block = tuple(map(int, match[1].split("x")))
        parsed = {"block": (*block, hdim) if family in ("combine", "dot_do_o") else block}
    elif match := re.fullmatch(r"([rw])(\d+x\d+x\d+)", word):
        parsed = _add_triple({"r": "waves", "w": "mma"}[match[1]], match[2], family, fields)
    elif match := re.fullmatch(r"(o|maxq)(\d+)", word):
        parsed = {{"o": "blocks_per_cu", "maxq": "max_seqlen_q"}[match[1]]: int(match[2])}
    elif match := re.fullmatch(r"p(s(?!k))?(sk)?(d(?!v)\d?)?(dv\d?)?", word):
        parsed = _parse_pads(match, PADS.get(fields.get("pipeline", ""), 1))
    return parsed


def _add_triple(field: str, text: str, family: str, fields: dict[str, Any]) -> dict[str, Any]:
    triples = (*fields[field], *map(int, text.split("x")))
    # The third GEMM of a gradient has the instruction of the first.
    if family == "dq_dk_dv" and field == "mma" and len(triples) == 6:
        triples = (*triples, *triples[:3])
    return {field: triples}


def _parse_pads(match: re.Match[str], unit: int) -> dict[str, Any]:
    queries, keys, hdim_q, hdim_v = match.groups()
    numbers = {name: int(text.lstrip("dv") or unit) for name, text in (("q", hdim_q), ("v", hdim_v)) if text}
    lengths = {name: True for name, text in (("pad_q", queries), ("pad_k", keys)) if text}
    return {**lengths, **{f"pad_hdim_{name}": number for name, number in numbers.items()}}
