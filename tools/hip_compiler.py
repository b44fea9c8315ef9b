"""A hipcc for the machine's toolchain: compiles and links HIP programs with the words that hipcc takes.

`write_hipcc` writes it to a folder that a build has on PATH. It also works without ROCm and without LLVM's offload
bundler: each source is compiled in two passes, as clang's driver does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEADER = Path(__file__).resolve().with_suffix(".h")
SOURCES = (".cu", ".hip", ".cpp", ".cc", ".cxx", ".c")
# Words of hipcc that clang does not know, or that the toolchain's own flags say better.
DROPPED = ("--offload-arch", "--amdgpu-target", "-march=native", "-fgpu-rdc", "--hip-link", "-Wall", "-Wextra", "-x")
WITH_VALUE = ("-o", "-I", "-D", "-U", "-L", "-l", "-isystem", "-include", "-MF", "-MT", "-MQ", "-Xlinker")
LINK_ONLY = ("-l", "-L", "-Wl,", "-static", "-Xlinker")


def write_hipcc(folder: Path, gpu: str) -> None:
    """Write the program `hipcc` for one GPU to a folder."""
    from tilewright.arch import load
    from tilewright.building.toolchain import find_toolchain

    toolchain = find_toolchain(with_ck=False)
    settings = {
        "cxx": str(toolchain.cxx),
        "device": list(toolchain.device_flags(load(gpu))),
        "host": [*toolchain.host_flags(), f"--offload-arch={gpu}"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hipcc.json").write_text(json.dumps(settings))
    program = folder / "hipcc"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{Path(__file__).resolve()}" "$0.json" "$@"\n')
    program.chmod(0o755)


def main(settings_file: str, words: list[str]) -> int:
    """Compile, link, or both."""
    settings = json.loads(Path(settings_file).read_text())
    if "--version" in words:
        return subprocess.run([settings["cxx"], "--version"], check=False).returncode
    sources, target, compile_words, link_words, objects = _sort_words(words)
    with tempfile.TemporaryDirectory(prefix="hipcc-") as name:
        folder = Path(name)
        for number, source in enumerate(sources):
            made = Path(target) if "-c" in words and target else Path(f"{Path(source).stem}.o")
            output = made if "-c" in words else folder / f"{number}.o"
            code = _compile(settings, source, compile_words, output, folder / f"{number}.co")
            if code != 0:
                return code
            objects.append(str(output))
        if "-c" in words:
            return 0
        where = ("-fuse-ld=lld", *objects, *link_words, "-lamdhip64", "-lpthread", "-o", target or "a.out")
        return subprocess.run([settings["cxx"], "--no-default-config", *where], check=False).returncode


def _sort_words(words: list[str]) -> tuple[list[str], str | None, list[str], list[str], list[str]]:
    """Return sources, the target, words of the compiler, words of the linker, and other inputs of the linker."""
    sources: list[str] = []
    target: str | None = None
    compile_words: list[str] = []
    link_words: list[str] = []
    objects: list[str] = []
    waiting = iter(words)
    for word in waiting:
        value = [next(waiting)] if word in (*WITH_VALUE, "-x") else []
        if word == "-o":
            target = value[0]
        elif word == "-c" or word.startswith(DROPPED):
            continue
        elif word.startswith(LINK_ONLY):
            link_words += [word, *value]
        elif word.startswith("-"):
            compile_words += [word, *value]
        else:
            (sources if word.endswith(SOURCES) else objects).append(word)
    return sources, target, compile_words, link_words, objects


def _compile(settings: Mapping[str, Any], source: str, words: list[str], output: Path, code: Path) -> int:
    if source.endswith(".c"):
        plain = [settings["cxx"], "--no-default-config", "-x", "c", *words, "-c", source, "-o", str(output)]
        return subprocess.run([word for word in plain if not word.startswith("-std=c++")], check=False).returncode
    runtime = ["-include", str(HEADER)]
    unit = f"-cuid={Path(source).resolve()}"
    device = [settings["cxx"], *settings["device"], *runtime, *words, unit, source, "-o", str(code)]
    done = subprocess.run(device, check=False)
    if done.returncode != 0:
        return done.returncode
    included = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(code)]
    host = [settings["cxx"], *settings["host"], *runtime, *words, unit, *included, "-c", source, "-o", str(output)]
    return subprocess.run(host, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
