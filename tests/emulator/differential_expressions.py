"""C expressions over a and b, by type: compiled for a GPU and for the host, they must give the same bits."""

from __future__ import annotations

import numpy as np

# C types by name, and the NumPy type of what they are made of.
TYPES: dict[str, np.dtype] = {
    "uint32_t": np.dtype(np.uint32),
    "int32_t": np.dtype(np.int32),
    "uint64_t": np.dtype(np.uint64),
    "int64_t": np.dtype(np.int64),
    "uint16_t": np.dtype(np.uint16),
    "int16_t": np.dtype(np.int16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "_Float16": np.dtype(np.float16),
    "half2": np.dtype(np.float16),
    "ushort2": np.dtype(np.uint16),
    "short2": np.dtype(np.int16),
    "float2": np.dtype(np.float32),
}
DECLARATIONS = """
typedef unsigned char uint8_t; typedef signed char int8_t;
typedef unsigned short uint16_t; typedef short int16_t;
typedef unsigned int uint32_t; typedef int int32_t;
typedef unsigned long uint64_t; typedef long int64_t;
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef unsigned short ushort2 __attribute__((ext_vector_type(2)));
typedef short short2 __attribute__((ext_vector_type(2)));
/* What stands between two of these is not joined: a condition stays a jump, and a store stays one. */
#define FENCE __asm__ volatile("" ::: "memory")
#if defined(__AMDGCN__)
#define LDS static __attribute__((address_space(3), loader_uninitialized))
#define LANE __builtin_amdgcn_workitem_id_x()
#define OWN __attribute__((address_space(5)))
#define PRIVATE(type) type t[8]; volatile OWN type *p = (OWN type *)t
#else
#define LDS
#define LANE 0
#define PRIVATE(type) type t[8]; volatile type *p = t
#endif
"""


def when(condition: str, kind: str, otherwise: str = "") -> str:
    """An expression with a jump."""
    last = f" else {{ FENCE; r = {otherwise}; }}" if otherwise else ""
    return f"({{ {kind} r = b; if ({condition}) {{ FENCE; r = a * 3 + 1; }}{last} r; }})"


def keep_in_lds(kind: str, size: int, first: str, second: str) -> str:
    """Write a and b to the LDS, and read them."""
    both = f"t[{first}] = a; t[{second}] = b; FENCE;"
    return f"({{ LDS {kind} t[{size}]; {both} ({kind})(t[{first}] ^ t[{second}] << 1); }})"


EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "uint32_t": (
        "a + b",
        "a - b",
        "b - 2 * a",
        "a * b",
        "a * 10 + b",
        "a & ~b",
        "a | (b ^ 0x5a5a5a5a)",
        "~(a ^ b)",
        "(a & b) | (~a & 0x12345678)",
        "a << (b & 31)",
        "a >> (b & 31)",
        "(a << 5) + b",
        "(a + b) << 3",
        "(a << 9) | b",
        "(a & 0xff00ff) | b",
        "a + b + 77",
        "a ^ b ^ 0x0f0f0f0f",
        "(a ^ b) + 99",
        "b ? a / b : 5",
        "b ? a % b : 5",
        "a / 7",
        "a % 1000",
        "a > b ? a : b",
        "a < b ? a : b",
        "a < 10 ? 10 : a > 5000 ? 5000 : a",
        "a > b ? a - b : b - a",
        "a == b ? 3 : a != 0x80000000 ? 4 : 5",
        "__builtin_popcount(a) + b",
        "a ? __builtin_clz(a) : 32",
        "a ? __builtin_ctz(a) : 32",
        "__builtin_bitreverse32(a)",
        "__builtin_bswap32(a)",
        "__builtin_rotateleft32(a, b)",
        "__builtin_rotateright32(a, 13)",
        "(uint32_t)((uint64_t)a * b >> 32)",
        "(uint32_t)(((uint64_t)a << 32 | b) >> 11)",
        "(a >> 5) & 0x7f",
        "(a >> (b & 31)) & 0xfff",
        "(a & 0xffffff) * (b & 0xffffff)",
        "(a & 0xffffff) * (b & 0xffffff) + a",
        "(a & 0xffff) * (b & 0xffff) + b",
        "(uint8_t)a + (uint8_t)(b >> 16)",
        "(a & 0xff000000) | (b & 0xff0000) | ((a >> 8) & 0xff00) | (b & 0xff)",
        "__builtin_elementwise_add_sat(a, b)",
        "__builtin_elementwise_sub_sat(a, b)",
        "a + (a > b) + (a == 7)",
        "(a << 1) + b",
        "(a << 4) + b",
        "a >= b ? a - 3 : b ^ 5",
        "a < 1000 ? b * 3 : a + 1",
        "a > 1000 ? b * 3 : a + 1",
        "a <= b ? a * 5 : b",
        when("a <= b", "uint32_t"),
        when("b > 100 && a & 4", "uint32_t", "b ^ 5"),
        "({ PRIVATE(uint8_t); p[b & 7] = a; p[~b & 7] = b; p[b & 7] * 256u + p[~b & 7]; })",
        "({ PRIVATE(uint16_t); p[b & 7] = a >> 16; p[~b & 7] = b; p[b & 7] * 3u + p[~b & 7]; })",
        "({ LDS volatile uint8_t t[128]; t[LANE] = a >> 16; t[LANE + 64] = a; t[LANE] * 256u + t[LANE + 64]; })",
        keep_in_lds("uint32_t", 128, "LANE", "LANE + 64"),
        "({ LDS uint16_t t[64]; t[LANE] = a; FENCE; t[LANE] * 3u; })",
    ),
    "int32_t": (
        "(int32_t)((uint32_t)a - (uint32_t)b)",
        "a >> (b & 31)",
        "(b && b != -1) ? a / b : 3",
        "(b && b != -1) ? a % b : 3",
        "a / 12",
        "a > b ? a : b",
        "a < b ? a : b",
        "a < -100 ? -100 : a > 100 ? 100 : a",
        "(int32_t)((int64_t)a * b >> 32)",
        "(int8_t)a",
        "(int16_t)b",
        "(int8_t)(a >> 8) * (int8_t)b",
        "(int32_t)((uint32_t)a << 11) >> 22",
        "a < 0 ? (int32_t)-(uint32_t)a : a",
        "(a >> 31) ^ b",
        "__builtin_elementwise_add_sat(a, b)",
        "__builtin_elementwise_sub_sat(a, b)",
        "(a < b) + 2 * (a <= b) + 4 * (a == b)",
        "((a << 8) >> 8) * ((b << 8) >> 8)",
        "(a << 3) + b",
        "a > 1000 ? b ^ 1 : a",
        "a < 1000 ? b ^ 1 : a",
        "a < -1000 ? b ^ 1 : a",
        "__builtin_elementwise_min(__builtin_elementwise_min(a, b), 1234567)",
        "((a << 8) >> 8) * ((b << 8) >> 8) + a",
        *(when(f"a {sign} b", "int32_t") for sign in ("<", ">", "<=", ">=")),
        when("a >= b", "int32_t", "a - b"),
        "({ int32_t r = a, k = b & 15; do { FENCE; r = r * 3 + k; k += 2; } while (k <= (a & 15)); r; })",
    ),
    "uint64_t": (
        "a + b",
        "a - b",
        "a * b",
        "a << (b & 63)",
        "a >> (b & 63)",
        "(a << 3) + b",
        "b ? a / b : 5",
        "b ? a % b : 5",
        "a > b ? a : b",
        "a & ~b",
        "a ^ (b << 7)",
        "__builtin_popcountll(a)",
        "a ? __builtin_clzll(a) : 64",
        "a ? __builtin_ctzll(a) : 64",
        "(uint64_t)(uint32_t)a * (uint32_t)b + b",
        "(a == b) + 2 * (a < b)",
        "a | ~b",
        *(when(f"a {sign} b", "uint64_t") for sign in ("<", ">", "<=", ">=")),
        keep_in_lds("uint64_t", 128, "LANE", "LANE + 64"),
        keep_in_lds("uint64_t", 192, "LANE * 3", "LANE * 3 + 1"),
    ),
    "int64_t": (
        "a >> (b & 63)",
        "(b && b != -1) ? a / b : 3",
        "a > b ? a : b",
        "(int64_t)(int32_t)a * (int32_t)b + b",
        "a < b ? -1 : a > b",
        "(int64_t)(int16_t)a",
        "(int64_t)(int32_t)a * (int32_t)b + a",
        *(when(f"a {sign} b", "int64_t") for sign in ("<", ">", "<=", ">=")),
    ),
    "uint16_t": (
        "a + b",
        "a - b",
        "a * b",
        "a << (b & 15)",
        "a >> (b & 15)",
        "a > b ? a : b",
        "a * b + a",
        "~a",
        "a & b",
        "a | b",
        "a < b ? a : b",
        "a == b ? a ^ 5 : b",
        "(a & b) ^ (a | 0x55)",
        "(a & 0xff00) | (b & 0xff)",
        *(when(f"a {sign} b", "uint16_t") for sign in ("<", ">", "<=", ">=", "==")),
    ),
    "int16_t": ("a >> (b & 15)", "a < b ? a : b", "a > b ? a : b", "(int8_t)a + b"),
    "float": (
        "a + b",
        "a - b",
        "a * b",
        "a / b",
        "1.0f / a",
        "a * b + 3.0f",
        "__builtin_fmaf(a, b, 1.5f)",
        "__builtin_fmaf(-a, b, a)",
        "__builtin_fmaf(a, b, -b)",
        "__builtin_fmaxf(a, b)",
        "__builtin_fminf(a, b)",
        "__builtin_fminf(__builtin_fmaxf(a, -2.0f), 5.0f)",
        "__builtin_floorf(a)",
        "__builtin_ceilf(a)",
        "__builtin_truncf(a)",
        "__builtin_rintf(a)",
        "__builtin_roundf(a)",
        "__builtin_fabsf(a) - b",
        "-__builtin_fabsf(a) * b",
        "__builtin_copysignf(a, b)",
        "a > b ? a : -b",
        "a != a ? 1.f : 2.f",
        "(a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)",
        "!(a < b) + 2 * !(a >= b) + 4 * __builtin_isunordered(a, b) + 8 * __builtin_islessgreater(a, b)",
        "(float)(int)(a > -2e9f && a < 2e9f ? a : 0.f)",
        "(float)(unsigned)(a > 0.f && a < 4e9f ? a : 0.f)",
        "(float)(_Float16)a",
        "(float)((_Float16)a + (_Float16)b)",
        "(float)(unsigned char)(int)(a > -100 && a < 100 ? a : 0)",
        "(float)__builtin_bit_cast(int, a)",
        "(float)__builtin_bit_cast(unsigned, a)",
        "(float)((double)a * (double)b)",
        "__builtin_sqrtf(__builtin_fabsf(a))",
        "__builtin_ldexpf(a, (int)(b > -20 && b < 20 ? b : 0))",
        "__builtin_isinf(a) ? 3.f : __builtin_isnan(a) ? 4.f : __builtin_isnormal(a) ? 5.f : 6.f",
        "__builtin_fmaf(a, 0.5f, b) * 2.0f",
        "__builtin_fmaxf(__builtin_fmaxf(a + b, a - b), 2.5f)",
        "__builtin_fmaf(a, 3.25f, b)",
        *(when(f"a {sign} b", "float") for sign in ("<", ">", "<=", ">=", "==", "!=")),
        *(when(f"!(a {sign} b)", "float") for sign in ("<", ">", "<=", ">=", "==", "!=")),
        when("!__builtin_islessgreater(a, b)", "float"),
    ),
    "double": (
        "a + b",
        "a - b",
        "a * b",
        "a / b",
        "__builtin_fma(a, b, 1.5)",
        "__builtin_fma(a, -b, a)",
        "(double)(float)a",
        "a > b ? a : b",
        "__builtin_floor(a)",
        "__builtin_rint(a)",
        "__builtin_fmin(a, b)",
        "(double)(int)(a > -2e9 && a < 2e9 ? a : 0)",
        "__builtin_fabs(a) + b",
        "(a < b) + 2 * (a == b)",
    ),
    "_Float16": (
        "a + b",
        "a - b",
        "a * b",
        "a > b ? a : b",
        "(_Float16)__builtin_fabsf(a)",
        "(_Float16)((float)a * (float)b + 1.0f)",
        "(_Float16)(int)(a > -1000 && a < 1000 ? a : 0)",
        "(_Float16)(float)a - (_Float16)2",
        "(_Float16)__builtin_fmaf((float)a, (float)b, (float)a)",
        "(_Float16)__builtin_fmaf((float)a, 2.5f, (float)b)",
    ),
    "half2": (
        "a + b",
        "a * b",
        "a - b",
        "-a",
        "__builtin_elementwise_fma(a, b, a)",
        "a * b + (half2)1",
        "(half2){(_Float16)__builtin_fmaf(a.x, b.x, a.y), (_Float16)__builtin_fmaf(a.y, b.y, b.x)}",
    ),
    "ushort2": (
        "a + b",
        "a - b",
        "a * b",
        "a << (b & 15)",
        "a >> (b & 15)",
        "__builtin_elementwise_max(a, b)",
        "({ PRIVATE(uint16_t); p[b.x & 7] = a.y; (ushort2){p[b.x & 7], a.x}; })",
        "({ PRIVATE(uint16_t); p[b.x & 7] = a.y; (ushort2){a.x, p[b.x & 7]}; })",
    ),
    "short2": ("a >> (b & 15)", "__builtin_elementwise_min(a, b)", "__builtin_elementwise_add_sat(a, b)"),
    "float2": ("a + b", "a * b", "__builtin_elementwise_fma(a, b, a)", "-a + b", "a * 3.0f"),
}
CASES = [(kind, expression) for kind, several in EXPRESSIONS.items() for expression in several]


def make_gpu_source() -> str:
    """Two kernels of each case: k0, k1, … with operands for each lane, and s0, s1, … with operands that lanes share."""
    kernels = [
        DECLARATIONS,
        "#define KERNEL __attribute__((amdgpu_kernel)) void",
        "#define G __attribute__((address_space(1)))",
    ]
    kernels += ["#define SHARED __attribute__((address_space(4)))"]
    group, item = "__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workitem_id_x()"
    for number, (kind, expression) in enumerate(CASES):
        for name, space, place in (("k", "G", f"{group} * 64 + {item}"), ("s", "SHARED", group)):
            kernels.append(
                f"KERNEL {name}{number}(const {space} {kind} *A, const {space} {kind} *B, G {kind} *O) {{\n"
                f"  unsigned i = {place}; {kind} a = A[i], b = B[i]; O[i] = {expression}; }}"
            )
    return "\n".join(kernels)
