"""Documents and docstrings name files, modules, functions, commands and options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import names
import pytest
from fences import PAGES, ROOT
from names import PACKAGE, Span

# Pages about other projects and written from runs: of these only paths, modules, members and commands are compared.
WORDS_OF_OTHERS = {
    "evidence.md": "instructions and the tools of others",
    "findings.md": "functions of CK Tile, LLVM and Mesa",
    "hip-programs.md": "HIP's functions and ROCm's examples",
    "toolchain.md": "packages and files of ROCm, Debian, Fedora and Arch",
    "triton.md": "Triton's functions and tests",
    **dict.fromkeys(("ck-generations.md", "deep-tests.md", "gallery.md", "mutations.md", "parity.md"), "from runs"),
    **dict.fromkeys(("tile-engine-comparison.md", "truth.md", "verified.md"), "from runs"),
    **dict.fromkeys(
        ("cli.md", "fields.md", "gpus.md", "knobs.md", "python.md", "rules.md", "sets.md"), "from the code"
    ),
}
# Words that are in no source, and why a document may have them all the same.
FOREIGN = {
    word: reason
    for reason, words in {
        "CK Tile, CK's generators": """BlockTile BlockWarps IssuesPerRow RowsPerBlock WarpGemmDispatcher
            amd_buffer_store_impl compv1 compv2 dispatcher_kernels fwd fwd_splitkv heuristics i_idx lane_group_sz
            get_load_tr_row_col num_total_loop preshufflev1 scale_s set_tile sink_v LOG2E warp_gemm_dispatcher
            wavelet wei tanh_fast grouped_conv_bwd_data_bf16_2d_64x64x64_compv3 _fp8_fp8""",
        "LLVM": """getMaxWorkGroupsPerCU getNumWavesPerEUWithNumVGPRs getOccupancyWithWorkGroupSizes
            hasFlatLgkmVMemCountInOrder SelectDSAppendConsume Utils vaddr_prevent_overflow visit_shared_append""",
        "Mesa": "buffer_offset_part nuw",
        "HIP": "__threadfence heap_t hip_4",
        "torch, vLLM, aiter and models": """ActivationType activate_flash_attention_impl per_Token
            resolve_neg restore_flash_attention_impl varlen_attn w_scale weight_scale_inv""",
        "Python, click": "contextvars dataclasses flock shell_complete",
        "shells, the system, other programs": """AWS_ HIPBLASLT_LOG_MASK MIOPEN_ENABLE_LOGGING_CMD _TILEWRIGHT_COMPLETE
            bash_source bashrc cfg chgrp completions fish fish_source ldconfig zsh_source zshrc""",
        "formulas": "kᵀ silu x²",
        "placeholders and examples": """A1xx T2xx P3xx R4xx S5xx DESCRIPTOR GFX942 HEX Model PROBE STAGE XXX
            kk libtilewright_kernels me rdna5 test_rms_norm vX x_of""",
    }.items()
    for word in words.split()
}
# Instructions: the emulator's tables put their names together.
INSTRUCTION = re.compile(r"(?:v|s|ds|buffer)_\w*|_tr_")
# Files that exist elsewhere, or only once a reader has made them.
ELSEWHERE = {
    "ops/gemm/warp/warp_gemm_dispatcher.hpp": "CK Tile's",
    "ops/rms_norm": "the folder of the op in the example",
    "tests/test_rms_norm.py": "the test of the op in the example",
}


def is_known(fault: str) -> bool:
    name = fault.removeprefix("no function is called ").removeprefix("nothing is called ").split()[0]
    return name in FOREIGN or name in ELSEWHERE or bool(INSTRUCTION.fullmatch(name))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_page_names_what_exists(page: Path) -> None:
    own = names.list_own_words(page)
    faults = []
    for span in names.list_spans(page):
        found = [*names.find_dotted_faults(span.text), *names.find_path_faults(span.text, page.parent)]
        found += names.find_command_faults(span.text)
        if not span.fenced:
            found += names.find_member_faults(span.text)
            found += [] if page.name in WORDS_OF_OTHERS else names.find_word_faults(span, own)
        faults += [f"{page.relative_to(ROOT)}:{span.line}: {fault}" for fault in found if not is_known(fault)]
    assert not faults, "\n".join(faults)


def test_docstrings_name_what_exists() -> None:
    faults = []
    for file in PACKAGE.rglob("*.py"):
        for span, of_module in names.list_docstring_spans(file):
            found = [*names.find_dotted_faults(span.text), *names.find_path_faults(span.text, file.parent)]
            found += [*names.find_command_faults(span.text), *names.find_word_faults(span)]
            found += names.find_definition_faults(span) if of_module else []
            faults += [f"{file.relative_to(ROOT)}:{span.line}: {fault}" for fault in found if not is_known(fault)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tw.nothing", "tw.nothing does not exist"),
        ("tilewright.bench.Nothing", "tilewright.bench.Nothing does not exist"),
        ("tilewright.Registry.nothing", "tilewright.Registry.nothing does not exist"),
        ("Registry.nothing", "Registry has no nothing"),
        ("registry.nothing(x)", "registry has no nothing"),
        ("building/nothing.py", "building/nothing.py does not exist"),
        ("tests/docs/test_named_code.py::test_nothing", "tests/docs/test_named_code.py has no test_nothing"),
        ("tilewright nothing", "tilewright has no command nothing"),
        ("tilewright cache ls --nothing", "tilewright cache ls has no --nothing"),
        ("python tools/make_docs.py --nothing", "tools/make_docs.py has no --nothing"),
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, fault: str) -> None:
    found = [*names.find_dotted_faults(text), *names.find_path_faults(text, ROOT), *names.find_member_faults(text)]
    assert [*found, *names.find_command_faults(text)] == [fault]


def test_an_unknown_word_is_found() -> None:
    name = "".join(("not", "hing_at_all"))  # in two parts: this file is one of the sources
    assert list(names.find_word_faults(Span(name, 1))) == [f"{name} is nowhere in the code"]
    assert f"no function is called {name}" in list(names.find_word_faults(Span(f"{name}()", 1)))
    row = Span("Registry.run", 1, files=(PACKAGE / "base" / "errors.py",))
    assert list(names.find_word_faults(row)) == ["run is not in errors.py"]
    assert list(names.find_definition_faults(Span(name, 1))) == [f"nothing is called {name}"]


def test_exceptions_are_needed() -> None:
    assert [word for word in FOREIGN if word in names.list_words() and word in names.list_definitions()] == []
    assert [path for path in ELSEWHERE if (ROOT / path).exists() or (PACKAGE / path).exists()] == []
