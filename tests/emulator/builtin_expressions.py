"""Statements with the compiler's own functions for AMD GPUs, and the same in plain C for the host.

They read A[i] and B[i] and change O[i], whose value before is that of B[i].
"""

from __future__ import annotations

from dataclasses import dataclass

COUNT = 4096
_GFX9 = ("gfx90a", "gfx942", "gfx950")
_ALL = (*_GFX9, "gfx1100", "gfx1201")


@dataclass(frozen=True)
class Statement:
    """`kind` is the C type of the elements; `gpus` have the function."""

    kind: str
    gpu: str
    host: str
    gpus: tuple[str, ...] = _ALL
    floats: bool = False  # the results are bits of f32, where any NaN is one


# AMD's manuals: the last word of a buffer's descriptor, with the data format of 32 bits; and 8-bit floats.
DECLARATIONS = f"""
typedef unsigned char uint8_t; typedef unsigned int uint32_t;
typedef uint32_t uint3 __attribute__((ext_vector_type(3)));
typedef float float2 __attribute__((ext_vector_type(2))); typedef __bf16 bfloat2 __attribute__((ext_vector_type(2)));
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
#if defined(__AMDGCN__)
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define LAST 0x00027000
#else
#define LAST 0x31004000
#endif
#define BUFFER(p) __builtin_amdgcn_make_buffer_rsrc((void *)(p), 0, {COUNT} * sizeof(*(p)), LAST)
#else
static uint32_t to_bits(float value) {{ return __builtin_bit_cast(uint32_t, value); }}
static uint32_t decode(uint32_t code, int mantissa, int bias, int finite) {{
  uint32_t field = code & 127, fraction = field & ((1 << mantissa) - 1), exponent = field >> mantissa;
  uint32_t most = 127 >> mantissa;
  if (finite ? code == 128 : mantissa == 3 ? field == 127 : exponent == most && fraction) return 0x7fc00000;
  float value = exponent ? __builtin_ldexpf(fraction + (1 << mantissa), exponent - bias - mantissa)
                         : __builtin_ldexpf(fraction, 1 - bias - mantissa);
  if (!finite && mantissa == 2 && exponent == most) value = __builtin_inff();
  return to_bits(code & 128 ? -value : value);
}}
static float round_bf16(float value) {{
  uint32_t bits = to_bits(value);
  if (value != value) return value;
  return __builtin_bit_cast(float, (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}}
#endif
"""


def decode_bytes(name: str, mantissa: int, bias: int, finite: bool, gpus: tuple[str, ...]) -> list[Statement]:
    """Conversions of each byte of a register to f32."""
    return [
        Statement(
            "uint32_t",
            f"O[i] = __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_f32_{name}(A[i], {byte}));",
            f"O[i] = decode(A[i] >> {8 * byte} & 255, {mantissa}, {bias}, {int(finite)});",
            gpus,
            floats=True,
        )
        for byte in range(4)
    ]


_ACCUMULATORS = """uint32_t x, y, p, q;
  __asm__ volatile("v_accvgpr_write_b32 %0, %1" : "=a"(x) : "v"(A[i])); y = x;
  __asm__ volatile("v_accvgpr_write_b32 %0, %1" : "+a"(x) : "v"(B[i]));
  __asm__ volatile("v_accvgpr_read_b32 %0, %1" : "=v"(p) : "a"(x));
  __asm__ volatile("v_accvgpr_read_b32 %0, %1" : "=v"(q) : "a"(y));
  O[i] = p ^ q << 1;"""

STATEMENTS = [
    Statement(
        "uint32_t",
        f"uint3 w = __builtin_amdgcn_raw_buffer_load_b96(BUFFER(A), i % {COUNT - 2} * 4, 0, 0); "
        "O[i] = w.x ^ w.y << 1 ^ w.z << 2;",
        f"const uint32_t *w = A + i % {COUNT - 2}; O[i] = w[0] ^ w[1] << 1 ^ w[2] << 2;",
    ),
    Statement(
        "uint32_t",
        "__builtin_amdgcn_raw_buffer_store_b8((uint8_t)(A[i] + B[i]), BUFFER(O), i * 4 + (i & 3), 0, 0);",
        "((uint8_t *)O)[i * 4 + (i & 3)] = A[i] + B[i];",
    ),
    Statement(
        "half2",
        "__builtin_amdgcn_raw_ptr_buffer_atomic_fadd_v2f16(A[i], BUFFER(O), i * 4, 0, 0);",
        "O[i] = A[i] + B[i];",
        _GFX9,
    ),
    Statement("uint32_t", _ACCUMULATORS, "O[i] = B[i] ^ A[i] << 1;", _GFX9),
    Statement(
        "float2",
        "bfloat2 w = {(__bf16)A[i].x, (__bf16)A[i].y}; O[i] = (float2){(float)w.x, (float)w.y};",
        "O[i] = (float2){round_bf16(A[i].x), round_bf16(A[i].y)};",
    ),
    *decode_bytes("fp8", 3, 8, True, ("gfx942",)),
    *decode_bytes("bf8", 2, 16, True, ("gfx942",)),
    *decode_bytes("fp8", 3, 7, False, ("gfx950", "gfx1201")),
    *decode_bytes("bf8", 2, 15, False, ("gfx950", "gfx1201")),
]


def make_gpu_source(gpu: str) -> str:
    """The kernels b0, b1, … for those statements that the GPU has."""
    kernels = [DECLARATIONS, "#define G __attribute__((address_space(1)))"]
    for number, each in enumerate(STATEMENTS):
        if gpu in each.gpus:
            kernels.append(
                f"__attribute__((amdgpu_kernel)) void b{number}(const G {each.kind} *A, const G {each.kind} *B, "
                f"G {each.kind} *O) {{\n  unsigned i = __builtin_amdgcn_workgroup_id_x() * 64 + "
                f"__builtin_amdgcn_workitem_id_x();\n  {each.gpu} }}"
            )
    return "\n".join(kernels)


def make_host_source() -> str:
    """The functions b0, b1, … for all statements."""
    functions = [
        f"void b{number}(const {each.kind} *A, const {each.kind} *B, {each.kind} *O) {{\n"
        f"  for (int i = 0; i < {COUNT}; i++) {{ {each.host} }} }}"
        for number, each in enumerate(STATEMENTS)
    ]
    return "\n".join([DECLARATIONS, *functions])
