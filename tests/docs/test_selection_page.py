"""The page about selection shows what its commands print today."""

from __future__ import annotations

import pytest
from fences import ROOT

from show_outputs import refresh_outputs
from tilewright.base import knobs

PAGE = ROOT / "docs" / "selection.md"


def test_outputs_are_put_after_their_commands() -> None:
    page = "```bash\necho one > a; cat a\n```\n\n```text\nold\n```\n\n```bash\ncat a a\n```\n\n```text\n```\n"
    kept = "<!-- not run -->\n```bash\nfalse\n```\n\n```text\nas it was\n```\n\n```bash\ntrue\n```\n"

    assert (
        refresh_outputs(page + kept)
        == page.replace("old\n", "one\n").replace("text\n```\n", "text\none\none\n```\n") + kept
    )


def test_a_command_that_fails_is_said() -> None:
    with pytest.raises(SystemExit, match=r"exit code 3 of:\n.*exit 3"):
        refresh_outputs("```bash\nexit 3\n```\n")


@pytest.mark.slow
def test_the_page_is_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)
    page = PAGE.read_text(encoding="utf-8")

    assert refresh_outputs(page) == page, "run: python tools/show_outputs.py docs/selection.md"
