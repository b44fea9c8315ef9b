"""Private names in results."""

from __future__ import annotations

from tilewright.acceptance.privacy import Redactor

REDACTOR = Redactor({"node17.example.org": "HOST", "node17": "HOST", "ada": "USER", "root": "USER"})


def test_paths_keep_their_last_part() -> None:
    said = REDACTOR.redact_text("/home/ada/.cache/tilewright/ab/lib.so cannot be loaded (see /tmp/x/y.log)")
    assert said == "…/lib.so cannot be loaded (see …/y.log)"


def test_paths_of_packages_and_fractions_are_kept() -> None:
    text = "/usr/lib/x86_64-linux-gnu/libamdhip64.so, /opt/rocm/lib/libamdhip64.so.6, 3/4 of m/n, GB/s, /dev/kfd"
    assert REDACTOR.redact_text(text) == text


def test_host_and_user_are_replaced_as_whole_words() -> None:
    assert REDACTOR.redact_text("node17.example.org: ada and adamant on node17") == "HOST: USER and adamant on HOST"


def test_common_names_are_no_secret() -> None:
    assert REDACTOR.redact_text("root mean square") == "root mean square"


def test_documents_are_redacted_with_their_keys() -> None:
    document = {"/home/ada/x/k": ["node17", {"n": 3, "path": None}]}
    assert REDACTOR.redact(document) == {"…/k": ["HOST", {"n": 3, "path": None}]}
