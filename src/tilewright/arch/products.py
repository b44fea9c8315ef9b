"""Product names of GPUs: `gfx942` for "MI300X"."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError, UnknownValueError

# Words before the name of a product, which may be omitted.
_BRANDS = re.compile(r"^(amd|instinct|radeon)\s+", re.IGNORECASE)


def find_gpu_of_product(text: str, products: Mapping[str, str]) -> str:
    """The name of the GPU with this product name. `products` maps the names of all GPUs to their products.

    Brand, case, blanks, hyphens and underscores do not matter. `UnknownValueError` lists all names and products.
    """
    short = {name: cut_product(product) for name, product in products.items()}
    key = _normalize_product(text)
    matching = [name for name, product in short.items() if key and _normalize_product(product) == key]
    if not matching:
        raise UnknownValueError("GPU", text, [*short, *dict.fromkeys(short.values())])
    if len(matching) > 1:
        raise InvalidValueError(f"{text} is the product name of {' and '.join(matching)}: give one of these names")
    return matching[0]


def cut_product(product: str) -> str:
    """`MI250X` for `Instinct MI250X (one GCD)`, `RX 7900 XTX` for `Radeon RX 7900 XTX`."""
    name = product.partition("(")[0].strip()
    while (shorter := _BRANDS.sub("", name)) != name:
        name = shorter
    return name


def _normalize_product(text: str) -> str:
    """A product name without brand, case, blanks, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", cut_product(re.sub("[_-]", " ", text.strip()))).lower()
