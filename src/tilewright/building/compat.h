/* What the HIP 5.2 headers of Linux distributions lack when clang 22 or newer compiles them.
 *
 * Put in front of every source with -include, for the GPU-less toolchain only: a ROCm installation
 * has headers that fit its compiler. Each part says which header needs it and why. */
/* Not #pragma once: copies of this file lie in several folders, and one source may see two of them. */
#ifndef TILEWRIGHT_COMPAT_H
#define TILEWRIGHT_COMPAT_H

#include <hip/hip_version.h>

/* amd_warp_functions.h defines warpSize with this macro, which clang predefined up to version 21.
 * RDNA (gfx10 and later) runs CK Tile's kernels with 32 lanes, GCN and CDNA with 64. The host pass has
 * no __GFXnn__ macro and gets 64, as clang's own host value always was. */
#if !defined(__AMDGCN_WAVEFRONT_SIZE)
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define __AMDGCN_WAVEFRONT_SIZE 32
#else
#define __AMDGCN_WAVEFRONT_SIZE 64
#endif
#endif

#if HIP_VERSION_MAJOR == 5 && HIP_VERSION_MINOR <= 2

/* amd_hip_fp16.h calls these two in hrcp() and h2rcp(). They were declared by clang's
 * __clang_hip_libdevice_declares.h, which no longer does. v_rcp_f16 is what they stood for. */
typedef _Float16 tilewright_half2 __attribute__((ext_vector_type(2)));

__attribute__((device)) inline _Float16 __llvm_amdgcn_rcp_f16(_Float16 x)
{
    return static_cast<_Float16>(__builtin_amdgcn_rcph(x));
}

__attribute__((device)) inline tilewright_half2 __llvm_amdgcn_rcp_2f16(tilewright_half2 x)
{
    return tilewright_half2{__llvm_amdgcn_rcp_f16(x.x), __llvm_amdgcn_rcp_f16(x.y)};
}

/* ck_tile/ops/fmha/block/block_dropout.hpp applies bit_cast to what make_uint2 returns. The uint2 of
 * amd_hip_vector_types.h has user-written copy operations, so it is not trivially copyable and bit_cast
 * refuses it. A plain struct of the same two words is accepted and still converts to uint2. */
#include <hip/hip_vector_types.h>

struct tilewright_uint2
{
    unsigned int x;
    unsigned int y;
    __attribute__((host)) __attribute__((device)) operator uint2() const { return uint2{x, y}; }
};

__attribute__((host)) __attribute__((device)) static inline tilewright_uint2
tilewright_make_uint2(unsigned int x, unsigned int y)
{
    return tilewright_uint2{x, y};
}

#define make_uint2 tilewright_make_uint2

/* ck_tile/host/device_prop.hpp of 2026 asks for this attribute, which came with HIP 6. The number is that of
 * HIP 6 and 7; HIP 5's library answers that it does not know it, and CK Tile then assumes one XCC. */
#define hipDeviceAttributeNumberOfXccs static_cast<hipDeviceAttribute_t>(10018)

#endif

#endif
