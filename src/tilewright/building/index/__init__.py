"""A signed index of built kernels on any static host: made from a store, read by machines that pinned its root.

Only this package knows python-tuf.
"""

from tilewright.base.extras import require_packages

require_packages("an index of kernels", ("tuf", "cryptography"), "index")
