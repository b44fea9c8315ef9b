"""The recipe to compile and link kernels, common to all build systems.

A recipe is a list of steps. Each step is one call of the compiler per kernel, run in the folder of the products. Its
words are fixed texts and slots, which each build system fills in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tilewright.base.digest import digest_text, to_canonical_json

# Names in the folder with wrappers and build files.
HEADERS = "headers"  # a link to the folder of kernel headers, so that commands do not contain its path
PRODUCTS = "kernel_objects"
OBJECT_LIST = "objects.rsp"
RECIPE = "recipe.json"
WRAPPER_SUFFIX = ".cpp"
DEPFILE_SUFFIX = ".d"


class Slot(Enum):
    """A word of a command that depends on the kernel or the build system."""

    SOURCE = "source"
    PRODUCT = "product"
    DEPFILE = "depfile"
    UNIT = "unit"  # -cuid=<kernel>: both passes of a source must use the same name
    OBJECTS = "objects"  # @<list of all objects>: thousands of names do not fit into a command line


@dataclass(frozen=True)
class FolderFile:
    """A word of a command that names a file of the recipe. The file is in the folder of the build files."""

    name: str


Word = str | Slot | FolderFile


@dataclass(frozen=True)
class BuildStep:
    """A step that makes one file per kernel. `source` and `product` are the suffixes of its file names.

    No suffix of a recipe may end with another one: then no two kernels share a file, whatever their names.
    """

    name: str
    label: str  # shown after the kernel's name in progress messages
    flags: tuple[Word, ...]
    source: str
    product: str
    needs: tuple[str, ...] = ()  # products of the same kernel, one per GPU, that this step embeds
    reads_headers: bool = True
    linked: bool = False

    @property
    def words(self) -> tuple[Word, ...]:
        """The command after the compiler's name."""
        return (*self.flags, *self._dependency_flags(), Slot.SOURCE, "-o", Slot.PRODUCT)

    @property
    def embeds(self) -> bool:
        """Whether the step embeds code objects of earlier steps."""
        return bool(self.needs)

    def product_path(self, kernel: str) -> str:
        """The path of this step's product for a kernel."""
        return f"{PRODUCTS}/{kernel}{self.product}"

    def embedded_products(self, kernel: str) -> tuple[str, ...]:
        """The products of earlier steps that this step embeds for a kernel."""
        return tuple(f"{PRODUCTS}/{kernel}{need}" for need in self.needs)

    def file_suffixes(self) -> tuple[str, ...]:
        """Suffixes of all files that the step may write for a kernel."""
        return (self.product, self.product + DEPFILE_SUFFIX) if self.reads_headers else (self.product,)

    def _dependency_flags(self) -> tuple[Word, ...]:
        if not self.reads_headers:
            return ()
        # -MP: a removed header is not an error, but causes a rebuild.
        return (f"-I{HEADERS}", Slot.UNIT, "-MMD", "-MP", "-MT", Slot.PRODUCT, "-MF", Slot.DEPFILE)


@dataclass(frozen=True)
class MachinePath:
    """A path of this machine in the flags, and the variable with which another machine can replace it."""

    variable: str
    path: str


@dataclass(frozen=True)
class SplitWord:
    """A word with a path of this machine: the text before it, the path, and the text after it."""

    before: str
    path: MachinePath
    after: str


def split_word(text: str, paths: Sequence[MachinePath]) -> SplitWord | None:
    """Find the longest of the paths in a word; None if it contains none of them."""
    for path in sorted(paths, key=lambda path: -len(path.path)):
        before, found, after = text.partition(path.path)
        if found and (not after or after[0] in "/="):
            return SplitWord(before, path, after)
    return None


@dataclass(frozen=True)
class CompileRecipe:
    """The compiler, the steps per kernel, and the words that link them. `files` are written next to the build files."""

    compiler: str
    gpus: tuple[str, ...]
    steps: tuple[BuildStep, ...]
    link_flags: tuple[Word, ...]
    paths: tuple[MachinePath, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return JSON of everything that determines the objects. Build files depend on it to detect changed flags."""
        facts = {
            "compiler": self.compiler,
            "steps": {step.product: [str(word) for word in step.words] for step in self.steps},
            "link_flags": [str(word) for word in self.link_flags],
            "files": {name: digest_text(text) for name, text in self.files.items()},
        }
        return to_canonical_json(facts) + "\n"

    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of all files that the build of a kernel may write."""
        return tuple(suffix for step in self.steps for suffix in step.file_suffixes())

    def list_include_paths(self) -> Iterator[str]:
        """List the include files and folders in the flags; their names get into dependency files."""
        for step in self.steps:
            words = ["" if isinstance(word, FolderFile) else str(word) for word in step.flags]
            for before, word in zip(["", *words], words, strict=False):
                if before == "-include" and word:
                    yield word
                elif word.startswith("-I"):
                    yield word.removeprefix("-I")


@dataclass(frozen=True)
class LibraryTarget:
    """A shared library to build: its name, its kernels in order, and the recipe."""

    name: str
    kernels: Sequence[str]
    recipe: CompileRecipe

    @property
    def file(self) -> str:
        """The file name of the library."""
        return f"lib{self.name}.so"

    @property
    def link_words(self) -> tuple[Word, ...]:
        """The link command after the compiler's name."""
        named = f"-Wl,-soname,{self.file}"
        return ("-shared", Slot.OBJECTS, "-o", Slot.PRODUCT, named, *self.recipe.link_flags)

    def objects(self) -> Iterator[str]:
        """All objects to link."""
        return (step.product_path(kernel) for kernel in self.kernels for step in self.recipe.steps if step.linked)

    def format_object_list(self) -> str:
        """Format the file that lists all objects for the linker."""
        return "".join(f"{name}\n" for name in self.objects())
