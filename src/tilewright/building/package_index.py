"""Download one file of a package from an index, for environments without pip (as uv creates them).

Reads the simple index that PyPI and its mirrors serve: as JSON (PEP 691) or as HTML (PEP 503). The indexes come from
the settings of pip and uv: their variables, and pip's files. The file is trusted only because of its digest.

An interrupted download leaves the file NAME.part, and the next one continues it if the server supports ranges.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import re
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, Request, build_opener, url2pathname

from tilewright.base import knobs
from tilewright.base.documents import parse_json
from tilewright.base.errors import InvalidValueError, ToolchainError

PYPI = "https://pypi.org/simple"  # pip's default
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_ANSWER_S = 60.0  # for a server that does not answer
_MOST_LISTED = 64 * 2**20  # bytes of a file list; the largest on PyPI have a few million
_PIECE = 2**20
_PARTIAL, _NO_SUCH_RANGE = 206, 416  # HTTP status codes
_VARIABLES = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT", "PIP_CONFIG_FILE",
    "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX",
    "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Where to look for packages, in this order."""

    find_links: tuple[str, ...]  # folders, or pages with links to files
    indexes: tuple[str, ...]
    certificates: str | None


@dataclass(frozen=True, slots=True)
class WantedFile:
    """One file of a package, with its required digest and a size limit."""

    package: str  # normalized as in index URLs: lower case, with hyphens
    file: str
    sha256: str
    most_bytes: int


class _NotThereError(Exception):
    """A source does not have the file; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _Download:
    """Where a file goes, when it must be there, and the callback that gets the number of bytes of each piece."""

    wanted: WantedFile
    folder: Path
    deadline: float
    report: Callable[[int], object]

    @property
    def part(self) -> Path:
        return self.folder / f"{self.wanted.file}.part"


def download_file(
    wanted: WantedFile, folder: Path, limit_s: float, report: Callable[[int], object] = lambda _: None
) -> Path:
    """Download the file into `folder`. Raises `ToolchainError` with the reason for each source that lacks it.

    `report` is called with the number of bytes of each piece, those of an earlier, interrupted download included.
    """
    settings = read_index_settings()
    download = _Download(wanted, folder, time.monotonic() + limit_s, report)
    reasons = []
    for place in (*settings.find_links, *settings.indexes):
        is_index = place not in settings.find_links
        try:
            return _fetch_from(place, download, settings, is_index=is_index)
        except (_NotThereError, ValueError) as error:
            reasons.append(f"  {remove_password(place)}: {error}")
        except (HTTPError, URLError, OSError) as error:
            reasons.append(f"  {remove_password(place)}: {_describe_cause(error)}")
    listed = "\n".join(reasons) or "  no index is set (PIP_NO_INDEX or UV_NO_INDEX)"
    raise ToolchainError(f"no package index has {wanted.file}:\n{listed}")


def read_index_settings() -> IndexSettings:
    """Read the settings from variables and pip's files; the default index is PyPI."""
    said = knobs.read_foreign_variables(_VARIABLES)
    filed = _read_pip_files(said)

    def split_words(*names: str) -> list[str]:
        return [word for name in names for word in said.get(name, "").split()]

    links = [*split_words("PIP_FIND_LINKS", "UV_FIND_LINKS"), *filed.get("find-links", "").split()]
    # uv allows a name in front of a URL.
    named = [re.sub(r"^[\w.-]+=(?=\w+:)", "", word) for word in split_words("UV_INDEX", "UV_EXTRA_INDEX_URL")]
    extra = [*named, *split_words("PIP_EXTRA_INDEX_URL"), *filed.get("extra-index-url", "").split()]
    own = (
        split_words("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL") or filed.get("index-url", "").split() or [PYPI]
    )
    none = any(_is_true(text) for text in (*split_words("PIP_NO_INDEX", "UV_NO_INDEX"), filed.get("no-index", "")))
    return IndexSettings(
        find_links=tuple(dict.fromkeys(links)),
        indexes=() if none else tuple(dict.fromkeys([*extra, *own])),
        certificates=said.get("PIP_CERT") or filed.get("cert") or None,
    )


def remove_password(address: str) -> str:
    """Return a URL without its password."""
    return re.sub(r"(?<=//)[^/@]*@", "***@", address)


def _read_pip_files(said: Mapping[str, str]) -> dict[str, str]:
    """Read the options in pip's files; later files override earlier ones (pip's manual, "Configuration")."""
    own = said.get("PIP_CONFIG_FILE", "")
    if own == "/dev/null":  # pip's convention for "no files"
        return {}
    config = said.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    systems = said.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [
        *(Path(folder, "pip", "pip.conf") for folder in systems.split(":") if folder),
        Path("/etc/pip.conf"),
        Path.home() / ".pip" / "pip.conf",
        Path(config, "pip", "pip.conf"),
        Path(sys.prefix, "pip.conf"),
        *([Path(own)] if own else []),
    ]
    found: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ToolchainError(f"{file} cannot be read as a pip configuration file: {error}") from error
        for section in ("global", "download"):
            if parser.has_section(section):
                found |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    return found


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on", "y", "t")


def _fetch_from(place: str, download: _Download, settings: IndexSettings, *, is_index: bool) -> Path:
    wanted = download.wanted
    local = _find_local_folder(place)
    if not is_index and local is not None:
        if not (local / wanted.file).is_file():
            raise _NotThereError("the folder does not have it")
        with (local / wanted.file).open("rb") as source:
            return _copy_checked(source, download, start=0)
    page = f"{place.rstrip('/')}/{wanted.package}/" if is_index else place
    listed = _list_files(page, settings)
    found = listed.get(wanted.file)
    if found is None:
        others = f"it lists {len(listed)} other files of {wanted.package}" if listed else "it lists no files"
        raise _NotThereError(others)
    address, _, fragment = found.partition("#")
    if fragment.startswith("sha256=") and fragment != f"sha256={wanted.sha256}":
        raise _NotThereError(f"it has another file of this name, with {fragment}; expected sha256={wanted.sha256}")
    start = download.part.stat().st_size if download.part.is_file() else 0
    try:
        answer = _open_address(address, place, settings, start)
    except HTTPError as error:
        if error.code != _NO_SUCH_RANGE:
            raise
        answer = _open_address(address, place, settings)
    with answer as source:
        # A server without ranges sends the whole file.
        return _copy_checked(source, download, start if getattr(source, "status", None) == _PARTIAL else 0)


def _find_local_folder(place: str) -> Path | None:
    """Return the folder that a source names; None for a URL."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        path = Path(url2pathname(parts.path)).expanduser()
        return path if path.is_dir() else None
    return None


def _list_files(page: str, settings: IndexSettings) -> dict[str, str]:
    """List the files on a page: name → URL, with a digest after "#" where the page has one."""
    local = _find_local_folder(page)
    address = (local / "index.html").as_uri() if local is not None else page
    with _open_address(address, page, settings) as answer:
        text = answer.read(_MOST_LISTED + 1)
        kind, base = answer.headers.get_content_type(), answer.geturl()
    if len(text) > _MOST_LISTED:
        raise _NotThereError(f"its file list has more than {_MOST_LISTED:,} bytes")
    links = _parse_json_links(text) if kind == _JSON else _parse_html_links(text)
    return {unquote(urlsplit(link).path.rpartition("/")[2]): urljoin(base, link) for link in links}


def _parse_json_links(text: bytes) -> list[str]:
    try:
        files = parse_json(text)["files"]
        stated = [(file["url"].partition("#")[0], file.get("hashes", {}).get("sha256")) for file in files]
    except (InvalidValueError, LookupError, TypeError, AttributeError) as error:
        raise _NotThereError(f"its file list is not that of an index: {error!r}") from error
    return [f"{url}#sha256={digest}" if digest else url for url, digest in stated]


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _parse_html_links(text: bytes) -> list[str]:
    anchors = _Anchors()
    anchors.feed(text.decode("utf-8", errors="replace"))
    return anchors.links


def _open_address(address: str, place: str, settings: IndexSettings, start: int = 0) -> Any:
    """Open a URL for reading from byte `start`, with the user name and password of `place` if it is on the same server.

    A server may ignore `start`.
    """
    parts, home = urlsplit(address), urlsplit(place)
    if parts.scheme not in ("http", "https", "file"):
        raise _NotThereError(f"{remove_password(address)} is not an http, https or file URL")
    server = parts.netloc.rpartition("@")[2]
    request = Request(urlunsplit(parts._replace(netloc=server, fragment="")), headers={"Accept": _ACCEPT})
    if start:
        request.add_header("Range", f"bytes={start}-")
    user = parts if parts.username is not None else home if home.netloc.rpartition("@")[2] == server else None
    if user is not None and user.username is not None:
        pair = f"{unquote(user.username)}:{unquote(user.password or '')}".encode()
        # Not sent to servers that this one redirects to.
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    context = ssl.create_default_context(cafile=settings.certificates)
    return build_opener(HTTPSHandler(context=context)).open(request, timeout=_ANSWER_S)


def _copy_checked(source: IO[bytes], download: _Download, start: int) -> Path:
    """Append to the partial file from byte `start`, check size and digest of the whole, and give it its name."""
    wanted, part = download.wanted, download.part
    size, hasher = start, hashlib.sha256()
    with part.open("r+b" if start else "wb") as sink:
        for piece in iter(lambda: sink.read(_PIECE) if start else b"", b""):
            hasher.update(piece)
        download.report(start)
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > wanted.most_bytes:
                part.unlink()
                raise _NotThereError(f"its file has more than {wanted.most_bytes:,} bytes")
            if time.monotonic() > download.deadline:
                raise _NotThereError(f"the download is too slow: {size:,} bytes when its time limit was reached")
            hasher.update(piece)
            sink.write(piece)
            download.report(len(piece))
    headers = getattr(source, "headers", {})  # a local file has none
    if size < start + int(headers.get("Content-Length") or 0):
        raise _NotThereError(f"the connection was lost after {size:,} bytes; the next attempt continues there")
    if hasher.hexdigest() != wanted.sha256:
        part.unlink()
        raise _NotThereError(f"its file has sha256 {hasher.hexdigest()}, expected {wanted.sha256}")
    return part.replace(download.folder / wanted.file)


def _describe_cause(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it does not have the package (HTTP {error.code})" if error.code == 404 else f"HTTP {error.code}"
    if isinstance(error, FileNotFoundError) or (
        isinstance(error, URLError) and isinstance(error.reason, FileNotFoundError)
    ):
        return "it does not have the package"
    reason = error.reason if isinstance(error, URLError) else error
    return f"it cannot be reached: {reason}"
