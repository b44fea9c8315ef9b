"""Kernels by name: a built-in set, a kernel-set file, or one kernel by its name or digest."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops import describe_plugin_failures, list_ops, parse_kernel
from tilewright.ops.kernel import DIGEST_LENGTH, Kernel
from tilewright.ops.kernel_set import KernelSet, is_kernel_set_path, load_kernel_set
from tilewright.ops.op import Op

# A kernel's digest, or its beginning. Fewer digits would often match several kernels.
DIGEST = re.compile(r"[0-9a-f]{6,12}")
# A kernel name whose middle was replaced, as in the help texts: its digest is still complete.
SHORTENED = re.compile(r"(?:…|\.\.\.)-?([0-9a-f]{12})$")
LISTED = 10  # matching kernels that an error lists


def find_named(text: str) -> Op | KernelSet | Kernel:
    """The op, set or kernel that a text names. `UnknownValueError` lists the known ops and sets."""
    ops = {op.name: op for op in list_ops()}
    if text in ops:
        return ops[text]
    if is_kernel_set_path(text):
        return load_kernel_set(text)
    shortened = SHORTENED.search(text)
    if shortened is not None or DIGEST.fullmatch(text):
        return find_by_digest(shortened[1] if shortened else text)
    if text.partition("-")[0] in ops and "-" in text:
        return parse_kernel(text)
    sets = list_named_sets()
    if text in sets:
        return sets[text]
    raise UnknownValueError("op, set or kernel", text, [*ops, *sets], describe_plugin_failures())


def list_named_sets() -> dict[str, KernelSet]:
    """The built-in sets and spaces of all ops, by name. Of two ops with one name, the first has it."""
    found: dict[str, KernelSet] = {}
    for op in list_ops():
        for name, each in {**op.sets(), **op.spaces()}.items():
            found.setdefault(name, each)
    return found


def find_by_digest(text: str) -> Kernel:
    """The kernel whose digest begins with `text`, among the kernels in the store and in the preselected sets."""
    matching = {name for name in _list_built_names() if name.rpartition("-")[2].startswith(text)}
    if len(text) < DIGEST_LENGTH or not matching:
        matching.update(name for name in _list_preselected_names() if name.rpartition("-")[2].startswith(text))
    if len(matching) == 1:
        return parse_kernel(matching.pop())
    if not matching:
        raise InvalidValueError(_explain_unknown_digest(text))
    names = sorted(matching)
    more = [f"… and {len(names) - LISTED:,} more"] if len(names) > LISTED else []
    listing = "\n".join(f"  {name}" for name in [*names[:LISTED], *more])
    raise InvalidValueError(
        f"{len(names):,} kernels have digests that begin with {text}. Write more digits:\n{listing}"
    )


def _list_built_names() -> Iterator[str]:
    """The names of all kernels that the store has a build of."""
    from tilewright.building.store.local import Store  # noqa: PLC0415  (for digests only)

    names = (entry.name for entry in Store().list_entries())
    return (name for name in names if re.search(r"-[0-9a-f]{12}$", name))


@functools.cache
def _list_preselected_names() -> tuple[str, ...]:
    """The names of all kernels of all preselected sets: ten thousand, in about two seconds."""
    sets = (kernel_set for op in list_ops() for kernel_set in op.sets().values())
    return tuple(kernel.slug for kernel_set in sets for arch in kernel_set.archs for kernel in kernel_set.kernels(arch))


def _explain_unknown_digest(text: str) -> str:
    from tilewright.building.store.local import Store  # noqa: PLC0415  (see above)

    store = Store()
    for entry in store.list_entries():
        if entry.key.startswith(text):
            return (
                f"{text} is the key of a build in the store, not the digest of a kernel. It is a build of {entry.name}"
            )
    return (
        f"no known kernel has a digest that begins with {text}. Kernels are looked up in the preselected sets and in "
        f"the store ({store.root}). Give the kernel's full name, or its op and fields."
    )
