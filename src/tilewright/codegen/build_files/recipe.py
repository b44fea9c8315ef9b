"""How kernels are compiled and linked, said once for all build systems.

A recipe is a list of steps. Each step is one call of the compiler per kernel, run in the folder that takes the
products; its words are fixed texts and slots, and a build system knows what to put into a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.base.digest import canonical_json

# Names in the folder where wrappers and build files lie.
HEADERS = "headers"  # a link to the folder of kernel headers, so that commands need not name that folder
PRODUCTS = "kernel_objects"
OBJECT_LIST = "objects.rsp"
RECIPE = "recipe.json"
WRAPPER_SUFFIX = ".cpp"
DEPFILE_SUFFIX = ".d"


class Slot(Enum):
    """A word of a command that differs from kernel to kernel, or from build system to build system."""

    SOURCE = "source"
    PRODUCT = "product"
    DEPFILE = "depfile"
    UNIT = "unit"  # -cuid=<kernel>: both passes of a source must name their unit alike
    OBJECTS = "objects"  # @<list of all objects>: thousands of names do not fit into one shell word


Word = str | Slot


@dataclass(frozen=True)
class Step:
    """One file made from each kernel. `source` and `product` are what follows the kernel's name in file names.

    No suffix of a recipe may end with another one: then no two kernels share a file, whatever their names.
    """

    name: str
    label: str  # what progress shows after the kernel's name
    flags: tuple[Word, ...]
    source: str
    product: str
    needs: tuple[str, ...] = ()  # products of the same kernel, one per GPU, that this step embeds
    reads_headers: bool = True
    linked: bool = False

    @property
    def words(self) -> tuple[Word, ...]:
        """The command after the compiler's name."""
        return (*self.flags, *self._tracking(), Slot.SOURCE, "-o", Slot.PRODUCT)

    @property
    def embeds(self) -> bool:
        """Whether the step puts code objects of earlier steps into an object."""
        return bool(self.needs)

    def product_of(self, kernel: str) -> str:
        """Where this step puts what it makes of a kernel."""
        return f"{PRODUCTS}/{kernel}{self.product}"

    def needed_for(self, kernel: str) -> tuple[str, ...]:
        """The products of earlier steps that this step embeds for a kernel."""
        return tuple(f"{PRODUCTS}/{kernel}{need}" for need in self.needs)

    def files(self) -> tuple[str, ...]:
        """Suffixes of all files that the step may leave for a kernel."""
        return (self.product, self.product + DEPFILE_SUFFIX) if self.reads_headers else (self.product,)

    def _tracking(self) -> tuple[Word, ...]:
        if not self.reads_headers:
            return ()
        # -MP: a header that vanished is no error, but a reason to compile again.
        return (f"-I{HEADERS}", Slot.UNIT, "-MMD", "-MP", "-MT", Slot.PRODUCT, "-MF", Slot.DEPFILE)


@dataclass(frozen=True)
class CompileRecipe:
    """The compiler, what it is told for each kernel, and what it is told to link them."""

    compiler: str
    gpus: tuple[str, ...]
    steps: tuple[Step, ...]
    link_flags: tuple[str, ...]

    def text(self) -> str:
        """JSON of everything that decides the objects: build systems depend on it, to notice changed flags."""
        steps = {step.product: [str(word) for word in step.words] for step in self.steps}
        return canonical_json({"compiler": self.compiler, "steps": steps, "link_flags": self.link_flags}) + "\n"

    def suffixes(self) -> tuple[str, ...]:
        """What follows a kernel's name in the names of all files that its build may leave."""
        return tuple(suffix for step in self.steps for suffix in step.files())

    def include_paths(self) -> Iterator[str]:
        """Files and folders of the flags whose names reach the lists of dependencies."""
        for step in self.steps:
            words = [str(word) for word in step.flags]
            for before, word in zip(["", *words], words, strict=False):
                if before == "-include":
                    yield word
                elif word.startswith("-I"):
                    yield word.removeprefix("-I")


@dataclass(frozen=True)
class Library:
    """A shared library to be built: its name, its kernels in order, and how."""

    name: str
    kernels: Sequence[str]
    recipe: CompileRecipe

    @property
    def file(self) -> str:
        """The file name of the library."""
        return f"lib{self.name}.so"

    @property
    def link_words(self) -> tuple[Word, ...]:
        """The command that links, after the compiler's name."""
        named = f"-Wl,-soname,{self.file}"
        return ("-shared", Slot.OBJECTS, "-o", Slot.PRODUCT, named, *self.recipe.link_flags)

    def objects(self) -> Iterator[str]:
        """Every object that is linked."""
        return (step.product_of(kernel) for kernel in self.kernels for step in self.recipe.steps if step.linked)

    def object_list(self) -> str:
        """The text of the file that names all objects to the linker."""
        return "".join(f"{name}\n" for name in self.objects())
