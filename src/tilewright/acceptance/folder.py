"""The folder of an acceptance run: acceptance.json, a page, and a log for each stage, without private names."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tilewright.acceptance.page import render_page
from tilewright.acceptance.privacy import Redactor
from tilewright.acceptance.result import AcceptanceResult
from tilewright.base.atomic_write import describe_write_error, write_text
from tilewright.base.errors import InvalidValueError, OutputError

DOCUMENT, PAGE, LOGS = "acceptance.json", "acceptance.html", "logs"
DEFAULT_FOLDER = "tilewright-acceptance"


class ResultFolder:
    """Writes results into a folder. Logs are collected elsewhere, and copied without private names.

    `private` keeps paths, and the names of host and user.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path = path
        self._redactor = None if private else Redactor()
        self._raw = tempfile.TemporaryDirectory(prefix="tilewright-acceptance-")
        self.logs = Path(self._raw.name)
        try:
            _prepare_folder(path)
        except OSError as error:
            raise OutputError(describe_write_error(path, error)) from error

    def write(self, result: AcceptanceResult) -> None:
        """Write everything that is known so far."""
        document = self.redact(result.to_json())
        self._write_text(DOCUMENT, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        self._write_text(PAGE, render_page(document))
        for log in sorted(self.logs.glob("*.log")):
            text = log.read_text(encoding="utf-8", errors="replace")
            self._write_text(f"{LOGS}/{log.name}", text if self._redactor is None else self._redactor.redact_text(text))

    def redact(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document without private names, unless they were asked for."""
        if self._redactor is None:
            return document
        redacted: dict[str, Any] = self._redactor.redact(document)
        return redacted

    def close(self) -> None:
        """Remove the unredacted logs."""
        self._raw.cleanup()

    def _write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text)


def _prepare_folder(path: Path) -> None:
    """Create the folder, or empty one of an earlier run. Other files are never removed."""
    known = {DOCUMENT, PAGE, LOGS}
    if path.is_dir():
        others = sorted(each.name for each in path.iterdir() if each.name not in known)
        if others:
            raise InvalidValueError(
                f"{path} has other files, such as {others[0]}. Use a new folder, or that of an earlier run."
            )
        for name in (DOCUMENT, PAGE):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / LOGS, ignore_errors=True)
    (path / LOGS).mkdir(parents=True, exist_ok=True)
