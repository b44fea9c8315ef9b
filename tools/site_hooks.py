"""Hooks for the documentation site: pages from outside docs/, and links that work on the site and on GitHub.

Documents link to README.md, CONTRIBUTING.md, examples and sources by their paths in the repository. The site has a page
for each of these files, and the hooks turn such links into links between pages. See mkdocs.yml.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from gallery_page import find_anchor

ROOT = Path(__file__).parent.parent
# Files in the root of the repository, and their pages.
ROOT_PAGES = {
    "README.md": "tour.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
# Folders of examples with a page of their own. Python programs are in the gallery.
TITLES = {"pack": "Examples: C and C++", "cpp": "Gallery: C++", "hip": "Example: tests of HIP code"}
GALLERY = "gallery.md"
LANGUAGES = {
    ".py": "python",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".toml": "toml",
    ".txt": "cmake",
    ".yml": "yaml",
}

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?=\))")
_MARK = re.compile(r"^<!-- [^>]+? -->$")
_NESTED = re.compile(r"^ {2,3}(?=(?:[-*]|\d+\.) )")
_CODE = re.compile(r"(`+[^`]+`+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages for files outside docs/."""
    pages = {page: _read_root_page(name, page) for name, page in ROOT_PAGES.items()}
    pages |= {f"examples/{name}.md": _render_examples(name) for name in TITLES}
    for path in _find_linked_sources(files):
        pages[f"source/{path}.md"] = _render_source(path)
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Remove the marks that tests read, and turn links that leave docs/ into links between pages."""
    if page.file.generated_by is not None:  # these were prepared by on_files
        return markdown
    if page.file.src_uri == GALLERY:
        page.meta["hide"] = ["navigation"]  # lines of code have up to 120 columns
    return prepare_text(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def prepare_text(markdown: str, source: str, page: str) -> str:
    """Return the text of the file `source` for the page `page`. Both are paths with `/`.

    Marks for tests are removed, nested lists get the indentation that Python-Markdown needs, and links are rewritten.
    """
    lines = markdown.splitlines()
    for number in _find_prose(lines):
        lines[number] = _NESTED.sub("    ", _MARK.sub("", lines[number]))
    return rewrite_links("\n".join(lines) + "\n", source, page)


def rewrite_links(markdown: str, source: str, page: str) -> str:
    """Rewrite the links in a file to pages of the site, relative to the page `page`."""

    def rewrite(link: re.Match[str]) -> str:
        target, mark, anchor = link["target"].partition("#")
        if not target or ":" in target:
            return link["target"]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found, own_anchor = _find_page(path)
        relative = posixpath.relpath(found, posixpath.dirname(page) or ".")
        return relative + (mark + anchor if mark else own_anchor)

    lines = markdown.splitlines()
    for number in _find_prose(lines):
        lines[number] = _rewrite_line(lines[number], rewrite)
    return "\n".join(lines) + "\n"


def _rewrite_line(line: str, rewrite: Callable[[re.Match[str]], str]) -> str:
    """Rewrite the links of a line, except those in code."""
    return "".join(part if part.startswith("`") else _LINK.sub(rewrite, part) for part in _CODE.split(line))


def _find_page(path: str) -> tuple[str, str]:
    """Find the page for a path in the repository, and the anchor in it."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path], ""
    folder, _, rest = path.partition("/")
    if folder == "docs":
        return rest, ""
    if folder == "examples":
        if found := find_anchor(rest):
            return GALLERY, f"#{found}"
        name, _, file = rest.partition("/")
        anchor = re.sub(r"[^\w-]", "", file.lower())
        return f"examples/{name}.md", f"#{anchor}" if file and file != "README.md" else ""
    return f"source/{path}.md", ""


def _find_prose(lines: list[str]) -> Iterator[int]:
    """Yield the indices of lines outside fenced blocks."""
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number


def _find_linked_sources(files: Files) -> list[str]:
    """Find the source files that documents link to."""
    linked = set()
    for file in files.documentation_pages():
        folder = posixpath.dirname(f"docs/{file.src_uri}")
        lines = file.content_string.splitlines()
        for number in _find_prose(lines):
            for target in _LINK.findall(lines[number]):
                path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
                if _find_page(path)[0].startswith("source/") and (ROOT / path).is_file():
                    linked.add(path)
    return sorted(linked)


def _read_root_page(name: str, page: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith(".md"):
        return f"# {name.capitalize()}\n\n```text\n{text}```\n"
    return prepare_text(text, name, page)


def _render_examples(name: str) -> str:
    """Render a page with all files of an examples folder, its README.md first."""
    folder = ROOT / "examples" / name
    parts = [f"# {TITLES[name]}\n\nThe files in `examples/{name}`.\n"]
    readme = folder / "README.md"
    if readme.exists():
        text = readme.read_text(encoding="utf-8").partition("\n")[2]  # without its title
        parts.append(prepare_text(text, f"examples/{name}/README.md", f"examples/{name}.md"))
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path != readme]
    parts += [f"## {path.name}\n\n{_render_code(path)}" for path in files]
    return "\n".join(parts)


def _render_source(path: str) -> str:
    """Render a page with one source file, which the search ignores."""
    front = "---\nsearch:\n  exclude: true\n---\n\n"
    return f"{front}# {posixpath.basename(path)}\n\n`{path}`\n\n{_render_code(ROOT / path)}"


def _render_code(path: Path) -> str:
    language = LANGUAGES.get(path.suffix, "text")
    return f"````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"
