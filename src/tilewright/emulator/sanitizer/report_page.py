"""Findings as one HTML page, with the source lines if the files can be read."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Sequence
from html import escape

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.sanitizer.findings import Finding
from tilewright.emulator.sanitizer.sarif import list_rules
from tilewright.emulator.source_lines import SourceLine

_AROUND = 2  # source lines before and after
_STYLE = """
:root { color-scheme: light dark; --line: #d8dde3; --soft: #f5f7f9; --mark: #fde8e6; --red: #b42318; --grey: #57606a; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a4149; --soft: #1c2128; --mark: #4a1f1c; --red: #ff8f85; --grey: #9aa4af; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 0; }
.counts td { padding: .15rem 1rem .15rem 0; } .counts td:first-child { text-align: right; font-weight: 600; }
article { border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.2rem; margin: 1.2rem 0; }
.name { color: var(--red); } .soft { color: var(--grey); font-size: .9rem; } .advice { margin-bottom: 0; }
pre { background: var(--soft); border-radius: 6px; padding: .5rem .8rem; overflow-x: auto; margin: .3rem 0; }
pre { font-size: .85rem; }
pre b { background: var(--mark); font-weight: inherit; display: inline-block; min-width: 100%; }
h3 { font-size: .95rem; margin: 1rem 0 0; }
"""


def make_page(findings: Sequence[Finding], title: str = "Findings") -> str:
    """Return the page of findings."""
    counts = Counter(finding.name for finding in findings)
    meanings = list_rules(findings)
    rows = "".join(
        f"<tr><td>{count}</td><td>{escape(name)}</td><td class=soft>{escape(meanings[name])}</td></tr>"
        for name, count in counts.most_common()
    )
    body = "".join(_make_article(finding) for finding in findings) or "<p>The checks found nothing.</p>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><table class=counts>{rows}</table>{body}</body></html>\n"
    )


def _make_article(finding: Finding) -> str:
    times = "" if finding.count == 1 else f", found {finding.count} times"
    kernel = f"kernel {shorten_name(finding.kernel)}" if finding.kernel else ""
    where = ", ".join(filter(None, (finding.gpu, kernel))) + times
    places = "".join(map(_make_place, finding.places))
    lines = "" if finding.has_lines else "<p class=soft>No source lines: compile with -gline-tables-only or -g.</p>"
    return (
        f"<article><h2><span class=name>{escape(finding.name)}</span>: {escape(finding.message)}</h2>"
        f'<div class=soft title="{escape(demangle(finding.kernel))}">{escape(where)}</div>{places}{lines}'
        f"<p class=advice>{escape(finding.advice)}</p></article>"
    )


def _make_place(place: CodePlace) -> str:
    told = ", ".join(filter(None, (place.describe_indices(), place.action)))
    head = f"{place.source}: {told}" if place.source is not None else told
    parts = [f"<h3>{escape(head)}</h3>"]
    if place.source is not None:
        parts.append(_make_excerpt(place.source))
    parts += [f"<div class=soft>inlined at {escape(str(call))}</div>" for call in place.calls]
    if place.instruction is not None:
        at = f"{place.address:#x}: " if place.address is not None else ""
        parts.append(f"<div class=soft><code>{escape(at + place.instruction)}</code></div>")
    return "".join(parts)


def _make_excerpt(source: SourceLine) -> str:
    lines = [line.rstrip("\n") for line in linecache.getlines(source.file)]  # empty if the file is not here
    if not 0 < source.line <= len(lines):
        return ""
    first, last = max(source.line - _AROUND, 1), min(source.line + _AROUND, len(lines))
    shown = []
    for number in range(first, last + 1):
        text = f"{number:5}  {escape(lines[number - 1])}"
        shown.append(f"<b>{text}</b>" if number == source.line else text)
    return f"<pre>{chr(10).join(shown)}</pre>"
