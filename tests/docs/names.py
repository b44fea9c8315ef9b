"""What a name in a document can refer to: a file, a module, a command with its options, or a word of the code.

Everything is looked up in the text of the sources without their comments and docstrings: nothing is imported but the
commands, and a name that exists only in a comment does not count.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from fences import ROOT, blocks

from tilewright.cli.app import root
from tilewright.cli.filters import FilterCommand
from tilewright.ops import OPS

PACKAGE = ROOT / "src" / "tilewright"
# Short names of modules in programs.
ALIASES = {"tw": "tilewright", "twt": "tilewright.torch"}
# Variables that documents use for values of the class with the same name.
_INSTANCES = ("arch", "pack", "plan", "registry", "space")

_TREES = ("src", "tools", "examples", "research", "tests")
_FILES = ("Makefile", "Containerfile", "pyproject.toml", "mkdocs.yml", ".ci/run", ".github/workflows/ci.yml")
_C_SUFFIXES = (".hpp", ".h", ".cpp", ".c", ".hip", ".inc")
_SUFFIXES = (".py", ".toml", ".j2", ".cmake", ".txt", ".map", ".ipynb", "", *_C_SUFFIXES)
_PYTHON_TEXT = re.compile(r'"""(?:.|\n)*?"""|#.*$', re.MULTILINE)
_C_TEXT = re.compile(r"//.*$|/\*(?:.|\n)*?\*/", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)(?:\((.*?)\))?:\n((?:[ \t#)].*\n|\n)*)", re.MULTILINE)
_DEFINITION = re.compile(r"(?:def|class) (\w+)|^(\w+)(?:, \w+)* ?[:=]|^ {4}(\w+):|^ {4}([A-Z_]+) =", re.MULTILINE)
_C_FUNCTION = re.compile(r"(\w+)\(")
_DEEPEST = 4  # classes from a base to its last heir

_WORD = re.compile(r"[A-Za-z_]\w+")
_SPAN = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(?<![\w./-])((?:tilewright|twt?)(?:\.[A-Za-z_]\w*)+)(?![\w/])")
_MEMBER = re.compile(r"(?<![\w.>])([A-Za-z]\w+)\.([a-z_]\w+)")
_CALL = re.compile(r"(?<![\w.>:])([A-Za-z_]\w+)\((?!s\))")
_PATH = re.compile(r"(?<![\w/.<>~:*-])((?:[\w.<>*-]+/)+[\w.<>*-]*)(?:::(\w+))?")
_COMMAND = re.compile(r"(?<!import )(?<!from )(?<![\w./-])tilewright((?: [a-z][a-z-]+)+)(?![\w.])([^|;&#]*)")
_PROGRAM = re.compile(r"(?:python3?|pytest) (?:-m )?([\w./]+)(.*)")
_PROGRAM_START = re.compile(r" (?:ctest|python|pytest|\./|build/)")  # what `tilewright emulate` and `trace` run
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
_FILE_NAME = re.compile(r"\.(?:c|cfg|h|hpp|json|md|py|toml)$")
# Not words of the code: digests, names of kernels and their parts, addresses, options, placeholders.
_NO_WORDS = re.compile(r"^[0-9a-f]{7,}$|-gfx\w+-|\d+x\d+|://|^--|^-[a-zA-Z#]|[<>…]")


@dataclass(frozen=True)
class Span:
    """Text in back quotes, or a line of a fenced block, with the line and the files that its table row names."""

    text: str
    line: int
    fenced: bool = False
    files: tuple[Path, ...] = ()


# The code


def strip_comments(text: str, suffix: str) -> str:
    """The code alone."""
    if suffix == ".py":
        return _PYTHON_TEXT.sub("", text)
    return _C_TEXT.sub("", text) if suffix in _C_SUFFIXES else text


@functools.cache
def read_sources() -> dict[Path, str]:
    """The code of every source file that a document can name. Of tests, only their names, and those of helpers."""
    files = [ROOT / name for name in _FILES]
    for tree in _TREES:
        files += [path for path in (ROOT / tree).rglob("*") if path.suffix in _SUFFIXES and path.is_file()]
    texts = {path: strip_comments(path.read_text(encoding="utf-8"), path.suffix) for path in files}
    tests = ROOT / "tests"
    return {
        path: "\n".join(re.findall(r"def test_\w+", text)) if tests in path.parents[1:] else text
        for path, text in texts.items()
    }


@functools.cache
def list_words() -> frozenset[str]:
    """All words of the code, and the names of files and folders."""
    words = {word for text in read_sources().values() for word in _WORD.findall(text)}
    words.update(word for path in read_sources() for word in _WORD.findall(str(path.relative_to(ROOT))))
    return frozenset(words | {path.stem for path in (ROOT / "docs").rglob("*.md")})


@functools.cache
def list_strings() -> frozenset[str]:
    """Short texts in the code, such as names of fields, of kinds and of keys in files, and the names of its files."""
    texts = {name for text in read_sources().values() for name in re.findall(r'"([\w.]+)"', text)}
    return frozenset(texts | {name for path in read_sources() for name in (path.stem, path.parent.name)})


@functools.cache
def list_definitions() -> frozenset[str]:
    """The names of functions, classes, fields and constants in Python, and of functions in C and C++."""
    names: set[str] = set()
    for path, text in read_sources().items():
        if path.suffix == ".py":
            names.update(name for pair in _DEFINITION.findall(text) for name in pair if name)
        elif path.suffix in (*_C_SUFFIXES, ".j2"):
            names.update(_C_FUNCTION.findall(text))
    return frozenset(names)


@functools.cache
def list_members() -> dict[str, frozenset[str]]:
    """The words in the body of each class of the package and of its bases, and in C++ those of the same name."""
    bodies: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path, text in read_sources().items():
        if path.suffix == ".py" and path.is_relative_to(PACKAGE):
            for name, base, body in _CLASS.findall(text):
                bodies.setdefault(name, set()).update(_WORD.findall(body))
                bases.setdefault(name, set()).update(_WORD.findall(base))
        elif path.suffix == ".hpp" and path.is_relative_to(PACKAGE / "building" / "pack"):
            for name in re.findall(r"^(?:class|struct) (\w+)", text, re.MULTILINE):
                bodies.setdefault(name, set()).update(_C_FUNCTION.findall(text))

    for _ in range(_DEEPEST):
        for name, inherited in bases.items():
            bodies[name].update(word for base in inherited & bodies.keys() for word in bodies[base])
    return {name: frozenset(body) for name, body in bodies.items()}


@functools.cache
def list_commands() -> dict[tuple[str, ...], click.Command]:
    """Each command under its words."""

    def walk(command: click.Command, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for word in command.list_commands(context):
                inner = command.get_command(context, word)
                assert inner is not None
                yield from walk(inner, (*name, word))

    return dict(walk(root, ()))


def list_options(name: tuple[str, ...]) -> set[str]:
    """The options of a command. A command with filters has the fields of each op, too."""
    command = list_commands()[name]
    options = {"--help", *(text for each in command.params for text in (*each.opts, *each.secondary_opts))}
    if isinstance(command, FilterCommand):
        words = {word for op in OPS for word in (*op.shorthands, *op.field_names, *op.filters)}
        options |= {f"--{word.replace('_', '-')}" for word in words}
    return options


# Documents


def list_docstring_spans(file: Path) -> Iterator[tuple[Span, bool]]:
    """The text in back quotes of a file's docstrings and comments, and whether it is in the docstring of the module."""
    text = file.read_text(encoding="utf-8")
    for match in _PYTHON_TEXT.finditer(text) if "`" in text else ():
        line = text.count("\n", 0, match.start()) + 1
        yield from ((Span(span, line), match.start() == 0) for span in _SPAN.findall(match[0]))


def list_spans(page: Path) -> Iterator[Span]:
    """The text in back quotes and the lines of fenced blocks, but not of those with output, which other tests compare.

    Columns of a table with names of AMD's are left out: their header begins with AMD.
    """
    fenced, header = "", list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = "" if fenced else line
        elif fenced:
            yield from () if fenced == "```text" else (Span(line, number, fenced=True),)
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            header = header or cells
            named = [(title, _SPAN.findall(cell)) for title, cell in zip(header, cells, strict=False)]
            paths = [PACKAGE / text for title, texts in named if title == "file" for text in texts if "/" in text]
            files = tuple(path for path in paths if path in read_sources())
            for title, texts in named:
                if not title.startswith(("AMD", "`generate_kernel_wrappers.py`")):
                    yield from (Span(text, number, files=files) for text in texts)
        else:
            header = []
            yield from (Span(text, number) for text in _SPAN.findall(line))


def list_own_words(page: Path) -> frozenset[str]:
    """The words that a page's own programs and commands introduce."""
    return frozenset(word for block in blocks(page) for word in _WORD.findall(block.text))


def find_dotted_faults(text: str) -> Iterator[str]:
    """Names such as `tilewright.bench.Task` and `tw.build` that do not exist, and methods that a class lacks."""
    for name in _DOTTED.findall(text):
        first, _, rest = name.partition(".")
        parts = f"{ALIASES.get(first, first)}.{rest}".split(".")[1:]
        if not (_FILE_NAME.search(name) or _is_defined(parts) or name in list_strings()):
            yield f"{name} does not exist"


def _is_defined(parts: list[str]) -> bool:
    folder, code = PACKAGE, read_sources()[PACKAGE / "__init__.py"]
    for i, part in enumerate(parts):
        inner = folder / "ops" / part if folder == PACKAGE and (folder / "ops" / part).is_dir() else folder / part
        if inner.is_dir():
            folder, code = inner, read_sources()[inner / "__init__.py"]
        elif (file := inner.with_suffix(".py")).is_file():
            folder, code = inner, read_sources()[file]
        else:
            known = part in _WORD.findall(code)
            members = list_members().get(part)
            return known and (members is None or not parts[i + 1 :] or parts[i + 1] in members)
    return True


def find_member_faults(text: str) -> Iterator[str]:
    """`Registry.run` and `registry.run(…)`, if the class `Registry` has no such word in its body."""
    for name, member in _MEMBER.findall(text):
        members = list_members().get(name.capitalize() if name in _INSTANCES else name)
        if members is not None and member not in members and not _FILE_NAME.search(f"{name}.{member}"):
            yield f"{name} has no {member}"


def find_path_faults(text: str, folder: Path) -> Iterator[str]:
    """Paths below a folder of the repository or of the package that name no file, and tests that no file has."""
    for path, test in _PATH.findall(text):
        pattern = re.sub(r"<\w+>", "*", path.rstrip("/."))
        top = pattern.split("/")[0]
        # What is built is not in the repository.
        if top in (".", "build") or not any((each / top).is_dir() for each in (ROOT, PACKAGE)):
            continue
        matches = [match for each in (ROOT, PACKAGE, ROOT / "examples", folder) for match in each.glob(pattern)]
        if not matches:
            yield f"{path} does not exist"
        elif test and not any(f"def {test}(" in match.read_text(encoding="utf-8") for match in matches):
            yield f"{path} has no {test}"


def find_command_faults(text: str) -> Iterator[str]:
    """Commands and options of Tilewright and of the repository's programs that do not exist."""
    for words, rest in _COMMAND.findall(text):
        name: tuple[str, ...] = ()
        while (*name, *words.split()[len(name) : len(name) + 1]) in list_commands().keys() - {name}:
            name = tuple(words.split()[: len(name) + 1])
        if not name:
            yield f"tilewright has no command{words}"
            continue
        own = words + rest
        if not list_commands()[name].context_settings.get("allow_interspersed_args", True):
            own = _PROGRAM_START.split(own)[0]
        known = list_options(name) | list_options(())
        yield from (f"tilewright {' '.join(name)} has no {each}" for each in _OPTION.findall(own) if each not in known)
    for program, rest in _PROGRAM.findall(text):
        file = ROOT / (program if program.endswith(".py") else f"{program.replace('.', '/')}.py")
        if file.is_file() and not program.startswith("tests/"):
            code = file.read_text(encoding="utf-8")
            yield from (f"{program} has no {each}" for each in _OPTION.findall(rest) if each not in code)


def find_definition_faults(span: Span) -> Iterator[str]:
    """A bare name that is neither defined in the code nor a module nor a text, but perhaps a parameter."""
    known = span.text in list_definitions() or span.text in list_strings()
    if re.fullmatch(r"[a-z]\w+", span.text) and not known:
        yield f"nothing is called {span.text}"


def find_word_faults(span: Span, own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Words that are not in the code, functions that are defined nowhere, and names that the row's files lack."""
    for name in _CALL.findall(span.text):
        if name not in list_definitions() and name not in own:
            yield f"no function is called {name}"
    for part in span.text.split():
        for word in () if _NO_WORDS.search(part) else _WORD.findall(re.sub(r"\b\d\w*", "", part)):
            if word not in list_words() and word not in own:
                yield f"{word} is nowhere in the code"
    if span.files and re.fullmatch(r"[A-Za-z_]+(\.\w+)?", span.text) and not _FILE_NAME.search(span.text):
        name = span.text.rpartition(".")[2]
        known = {word for file in span.files for word in _WORD.findall(read_sources()[file])}
        yield from () if name in known else (f"{name} is not in {', '.join(file.name for file in span.files)}",)
