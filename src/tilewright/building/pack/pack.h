/* The table of a Tilewright pack: what is in one of its libraries, and how to call it.
 *
 * Plain C, and the same for every op. A pack has one library per GPU; each exports tw_pack_table.
 * `args` points to the struct of arguments of the kernel's op, which the op's own header declares: for a kernel
 * whose `op` is "xyz" that is tw_xyz_args of tilewright/xyz.h. Look at `op` before passing anything.
 *
 * Everything in a table is constant and lives as long as its library is loaded. All functions may be called from
 * several threads at once.
 */
#ifndef TILEWRIGHT_PACK_H
#define TILEWRIGHT_PACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a table can no longer be read by older programs. What is new is added at the end of a struct. */
#define TW_PACK_SCHEMA 1

/* Every op returns these, and the header of every op has this very text, for programs that use several. */
#ifndef TILEWRIGHT_STATUS
#define TILEWRIGHT_STATUS
enum tw_status {
    TW_OK = 0,
    TW_BAD_ARGS = 1,    /* the struct itself is unusable: wrong size, null pointer, size below 1 */
    TW_UNSUPPORTED = 2, /* this kernel cannot compute this problem */
    TW_WORKSPACE = 3,   /* the workspace is missing or too small */
    TW_HIP_ERROR = 4    /* the HIP runtime reported an error */
};
#endif

/* One field of a kernel's config. Texts stand as they are, other values as JSON: "fp16", "[128,128,32]", "true". */
typedef struct tw_pack_field {
    const char* name;
    const char* value;
} tw_pack_field;

/* Puts kernels of one op into order for a problem, best first, without a GPU.
 * `numbers` are `count` kernels by their place in the table, each of which supports the problem; `us` gets the
 * microseconds that each should take. Equal ones are ordered by their numbers. Returns TW_BAD_ARGS, and changes
 * nothing, for unusable arguments and for the number of a kernel of another op. */
typedef int (*tw_pack_rank_fn)(const void* args, uint64_t* numbers, uint64_t count, double* us);

typedef struct tw_pack_kernel {
    const char* slug;     /* the kernel's name, unique in the pack */
    const char* op;       /* which struct of arguments it takes */
    const char* symbol;   /* the prefix of its own C functions, which the library exports as well */
    const char* config;   /* all fields of its config as one JSON object */
    const tw_pack_field* fields; /* the same, field by field, sorted by name */
    uint64_t field_count;
    uint64_t args_size;   /* size of the struct of arguments that the kernel was built with */
    uint32_t abi_version; /* TW_<OP>_ABI_VERSION that the kernel was built with */
    uint32_t reserved;
    int (*supports)(const void* args);
    int (*workspace_size)(const void* args, uint64_t* bytes);
    int (*run)(const void* args, void* stream); /* stream is a hipStream_t; null is the default stream */
    const char* (*message)(void); /* why the last call of this thread did not return TW_OK */
    tw_pack_rank_fn rank; /* null where there is none, or beyond the end: ask tw_pack_rank_of */
} tw_pack_kernel;

typedef struct tw_pack {
    uint32_t schema;      /* TW_PACK_SCHEMA: look at it before anything else */
    uint32_t kernel_size; /* sizeof(tw_pack_kernel) of the library; newer ones may have longer structs */
    const char* name;     /* of the pack */
    const char* version;  /* of Tilewright */
    const char* gpu;      /* the GPU that all kernels of the library are for: "gfx942" */
    uint64_t count;
    const tw_pack_kernel* kernels; /* sorted by slug; see tw_pack_kernel_at */
} tw_pack;

/* The one entry of a pack's library. A program that loads several libraries asks each with dlsym. */
const tw_pack* tw_pack_table(void);
typedef const tw_pack* (*tw_pack_table_fn)(void);

/* Kernel number `index` of a table, also of one with longer structs than this header knows. */
static inline const tw_pack_kernel* tw_pack_kernel_at(const tw_pack* pack, uint64_t index)
{
    return (const tw_pack_kernel*)(const void*)((const char*)pack->kernels + index * pack->kernel_size);
}

/* What ranks the kernels of this one's op, or null: also for a library whose structs end before it. */
static inline tw_pack_rank_fn tw_pack_rank_of(const tw_pack* pack, const tw_pack_kernel* kernel)
{
    return pack->kernel_size >= offsetof(tw_pack_kernel, rank) + sizeof(tw_pack_rank_fn) ? kernel->rank : 0;
}

#ifdef __cplusplus
}
#endif
#endif
