/* Included first by the hipcc of hip_compiler.py: HIP's runtime, as hipcc does, and what the HIP 5.2 headers of Linux
 * distributions lack for programs when clang 22 or newer compiles them. */
#ifndef TILEWRIGHT_HIP_COMPILER_H
#define TILEWRIGHT_HIP_COMPILER_H

#include <hip/hip_version.h>

#if HIP_VERSION_MAJOR == 5 && HIP_VERSION_MINOR <= 2

/* amd_hip_atomic.h calls LLVM intrinsics that no longer exist. */
#define atomicInc tilewright_retired_atomic_inc
#define atomicDec tilewright_retired_atomic_dec
#include <hip/hip_runtime.h>
#undef atomicInc
#undef atomicDec
#undef make_uint2 /* building/compat.h replaces it for CK Tile */

__attribute__((device)) inline unsigned int atomicInc(unsigned int* address, unsigned int limit)
{
    return __builtin_amdgcn_atomic_inc32(address, limit, __ATOMIC_RELAXED, "agent");
}

__attribute__((device)) inline unsigned int atomicDec(unsigned int* address, unsigned int limit)
{
    return __builtin_amdgcn_atomic_dec32(address, limit, __ATOMIC_RELAXED, "agent");
}

#else
#include <hip/hip_runtime.h>
#endif

#endif
