"""Update the outputs of commands in a page: `python tools/show_outputs.py docs/selection.md`.

Runs the page's bash blocks from top to bottom in an empty folder, and replaces the text block after each by its output.
Blocks after a line `<!-- not run -->` are skipped. With --check, nothing is written, and the exit code is 1 if the page
is stale.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(
    r"(?P<mark>(?:^<!-- not run -->\n)?)^```bash\n(?P<code>.*?)^```\n(?:\n^```text\n(?P<text>.*?)^```\n)?", re.M | re.S
)


def refresh_outputs(page: str) -> str:
    """Return the page with current outputs."""
    with tempfile.TemporaryDirectory() as folder:
        return _BLOCK.sub(lambda found: _replace_output(found, Path(folder)), page)


def _replace_output(found: re.Match[str], folder: Path) -> str:
    if found["mark"]:
        return found[0]
    printed = _run_block(found["code"], folder)
    if found["text"] is None:
        return found[0]
    return found[0].replace(f"```text\n{found['text']}", f"```text\n{printed}")


def _run_block(code: str, folder: Path) -> str:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = ["bash", "-euo", "pipefail", "-c", code]
    environment = {**os.environ, "PATH": paths}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode} of:\n{code}\n{done.stdout}{done.stderr}")
    return done.stdout.strip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    stale = 0
    for path in given.pages:
        before = path.read_text(encoding="utf-8")
        after = refresh_outputs(before)
        if after != before:
            stale += 1
            print(f"{path} {'is stale' if given.check else 'written'}")
            if not given.check:
                path.write_text(after, encoding="utf-8")
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
