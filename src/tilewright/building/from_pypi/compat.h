/* What CK Tile needs with the HIP 7 headers of the toolchain from PyPI. Put in front of every source with -include. */
/* Not #pragma once: copies of this file lie in several folders, and one source may see two of them. */
#ifndef TILEWRIGHT_COMPAT_H
#define TILEWRIGHT_COMPAT_H

/* CK Tile's own bf16 type, as with the HIP headers of distributions. CK Tile takes clang's type from HIP 6.5 on, which
 * gives other code; kernels were verified with its own. */
#if !defined(CK_TILE_USE_LLVM_BUILTIN_BF16)
#define CK_TILE_USE_LLVM_BUILTIN_BF16 0
#endif

#endif
