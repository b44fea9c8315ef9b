"""Names that other libraries have for our data types: `bf16` for `torch.bfloat16`, `np.float16` and "half"."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.dtypes import ARRAY_TYPES, DTYPES

# Names of types in NumPy, ml_dtypes, torch and C. "float" is missing: it is fp32 in torch and C, and fp64 in NumPy.
# The encoding of 8-bit floats depends on the GPU, so both encodings have one name.
SPELLINGS: Mapping[str, str] = {
    **{theirs: ours.partition("_")[0] for ours, theirs in ARRAY_TYPES.items()},
    "half": "fp16",
    "single": "fp32",
    "double": "fp64",
}


def read_dtype_name(value: object) -> object:
    """Our name of a type that is given as a text, or as a type of NumPy, ml_dtypes or torch.

    Other values are returned unchanged, for the field's own error.
    """
    text = value if isinstance(value, str) else _get_type_name(value)
    if text is None or text in DTYPES:
        return value if text is None else text
    return SPELLINGS.get(text.removeprefix("torch."), value if isinstance(value, str) else text)


def _get_type_name(value: object) -> str | None:
    """The name of a type object; None if it has none. No library is imported for it."""
    if isinstance(value, type):
        return value.__name__  # np.float16, ml_dtypes.bfloat16
    name = getattr(value, "name", None)
    if isinstance(name, str) and hasattr(value, "itemsize"):
        return name  # np.dtype
    text = str(value)
    return text if text.startswith("torch.") else None
