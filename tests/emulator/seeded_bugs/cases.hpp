// Kernels with one bug each. With -DFIXED the bug is corrected and nothing else changes.
//
// A case begins with a comment: its name, the finding, and the launch, if it is not 1 work-group of 256 threads.
// `// here` marks the lines that the report must name.
#pragma once
#include <hip/hip_runtime.h>

#ifdef FIXED
#define FIX(...) __VA_ARGS__
#define BUG(...)
#else
#define FIX(...)
#define BUG(...) __VA_ARGS__
#endif

// `out`, `in` and `raw` have 4096 elements, `flags` has 64. Nobody wrote `raw`.
#define CASE(name) extern "C" __global__ void name(int* out, const int* in, int* flags, int* raw, int n)
#define t (static_cast<int>(threadIdx.x))
#define g (static_cast<int>(blockIdx.x))
#define i (static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x))
#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define WORKGROUP __HIP_MEMORY_SCOPE_WORKGROUP
