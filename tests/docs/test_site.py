"""The documentation site builds without warnings, its links lead somewhere, and it loads nothing from other servers."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from fences import PAGES, ROOT

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed: pip install -e '.[site]'"
)


@dataclass
class Html(HTMLParser):
    """The links, anchors and loaded files of a page."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def parse_pages(site: Path) -> Iterator[tuple[Path, Html]]:
    for path in sorted(site.glob("**/*.html")):
        if path.name != "404.html":  # its links are absolute
            page = Html()
            page.feed(path.read_text(encoding="utf-8"))
            yield path, page


@pytest.mark.slow
@needs_mkdocs
def test_links_on_the_site_lead_somewhere(site: Path) -> None:
    pages = dict(parse_pages(site))
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file)).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            found = target.exists() and (not anchor or target not in pages or unquote(anchor) in pages[target].anchors)
            if not found and anchor != "__skip":
                dead.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > len(PAGES)
    assert dead == []


@pytest.mark.slow
@needs_mkdocs
def test_the_site_loads_nothing_from_other_servers(site: Path) -> None:
    foreign = re.compile(r"(?:https?:)?//")
    assert [(path.name, url) for path, page in parse_pages(site) for url in page.loaded if foreign.match(url)] == []
    styles = [path for path in site.glob("**/*.css") if re.search(r"url\(\s*['\"]?(https?:)?//", path.read_text())]
    assert styles == []


def test_no_page_is_deeper_than_two_clicks() -> None:
    nav = CONFIG.partition("\nnav:\n")[2].splitlines()
    assert [line for line in nav if not re.match(r"(  - [\w-]+:$|      - .+: \S+\.md$)", line)] == []


def test_github_runs_what_ci_runs() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    run, called = (
        re.findall(r"^(?: +- run: )?make ([a-z0-9= -]+)$", text, re.MULTILINE) for text in (script, workflow)
    )
    assert [target for target in called if target != "site"] == run
