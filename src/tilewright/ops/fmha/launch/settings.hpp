// How CK Tile's attention is compiled: before its headers, in every translation unit of the op.
#ifndef TILEWRIGHT_FMHA_SETTINGS_HPP
#define TILEWRIGHT_FMHA_SETTINGS_HPP

// Exponentials as powers of two, which the hardware has: what all users of these kernels compile with.
#define CK_TILE_FMHA_FWD_FAST_EXP2 1

#endif
