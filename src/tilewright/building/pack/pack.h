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

/* Problems. An op's own header, tilewright/<op>_problem.h, declares the struct of its problems: the fields that
 * problems have in Python. Set the fields, then call `complete`, which all other functions need. */
#define TW_MAX_EXTENTS 4
#define TW_MAX_RANK 8
#define TW_MESSAGE_SIZE 512

/* One number for each dimension; a single one stands for all. */
typedef struct tw_extents {
    int64_t count;
    int64_t values[TW_MAX_EXTENTS];
} tw_extents;

/* A tensor of a problem. Strides are in elements. */
typedef struct tw_tensor {
    const char* name;
    const char* dtype;
    uint64_t rank;
    int64_t shape[TW_MAX_RANK];
    int64_t strides[TW_MAX_RANK];
    int32_t output;
    int32_t updated; /* an output whose old contents are read */
    uint64_t bytes;  /* from its first to its last element */
    uint64_t offset; /* of its address in the struct of arguments */
} tw_tensor;

/* Why a kernel does not support a problem: the first rule that rejects it. Texts other than the message are those of
 * the library. */
typedef struct tw_reason {
    const char* code;  /* "S503" */
    const char* rule;  /* "n-not-tiled" */
    const char* field; /* the field of the kernel or the problem to change; may be empty */
    const char* advice;
    char message[TW_MESSAGE_SIZE]; /* with the numbers */
} tw_reason;

/* The problems of an op. All functions return a tw_status. */
typedef struct tw_pack_op {
    const char* name;
    const char* problem_digest; /* TW_<OP>_PROBLEM of the header that the struct is declared in */
    uint64_t problem_size;
    uint64_t args_size;
    uint64_t workspace_offset;      /* of the workspace's address in the arguments; 0 where they have none */
    uint64_t workspace_size_offset; /* of its size */
    uint64_t most_tensors;          /* that a problem can have */
    uint64_t most_stages;
    /* Checks a problem, and replaces defaults by what they stand for; else the message says why not. */
    int (*complete)(void* problem, char* message, uint64_t size);
    /* The struct of arguments without addresses and workspace. */
    int (*arguments)(const void* problem, void* args);
    /* Fills at most `most_tensors` tensors: inputs first, in the order of Python. */
    int (*tensors)(const void* problem, tw_tensor* tensors, uint64_t* count);
    /* The problem of stage `number`, counted from 0; `found` is 0 after the last. A problem of one kernel is itself its
     * only stage. */
    int (*stage)(const void* problem, uint64_t number, void* stage, int* found);
    /* TW_OK if the kernel with this place in the table supports the problem, else TW_UNSUPPORTED and the reason, which
     * may be null. */
    int (*why_not)(const void* problem, uint64_t kernel, tw_reason* reason);
    /* As tw_pack_rank_fn, for a problem; null where there is no ranking. */
    int (*rank)(const void* problem, uint64_t* numbers, uint64_t count, double* us);
    /* The op's profiles, at most 64: the name of each, and the numbers that also name it, with commas. Only where
     * kernels have `profiles`: ask tw_pack_profiles_of. */
    const tw_pack_field* profiles;
    uint64_t profile_count;
} tw_pack_op;

/* HIP, as the library finds it. Statuses are those of HIP, 0 = success. */
typedef struct tw_pack_device {
    int (*allocate)(void** address, size_t bytes);
    int (*release)(void* address);
    int (*create_event)(void** event);
    int (*destroy_event)(void* event);
    int (*record_event)(void* event, void* stream);
    int (*wait_for_event)(void* event);
    int (*measure)(float* ms, void* start, void* stop);
    const char* (*describe)(int status);
    /* Only where kernels have `profiles`. `kind` is a hipMemcpyKind. */
    int (*copy)(void* to, const void* from, size_t bytes, int kind);
    int (*fill)(void* address, int byte, size_t bytes);
    int (*wait_for_stream)(void* stream);
} tw_pack_device;

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
    const tw_pack_op* about; /* the problems of its op; null where there are none, or beyond the end: tw_pack_op_of */
    const tw_pack_field* prepared; /* inputs that must be prepared: their names, and what to do in words */
    uint64_t prepared_count;
    uint64_t number; /* its place in the table */
    uint64_t profiles; /* bit i: the kernel is in profile i of its op; ask tw_pack_profiles_of */
} tw_pack_kernel;

typedef struct tw_pack {
    uint32_t schema;      /* TW_PACK_SCHEMA: look at it before anything else */
    uint32_t kernel_size; /* sizeof(tw_pack_kernel) of the library; newer ones may have longer structs */
    const char* name;     /* of the pack */
    const char* version;  /* of Tilewright */
    const char* gpu;      /* the GPU that all kernels of the library are for: "gfx942" */
    uint64_t count;
    const tw_pack_kernel* kernels; /* sorted by slug; see tw_pack_kernel_at */
    const tw_pack_device* device;  /* only where kernels have `about`: see tw_pack_device_of */
    const char* fp8; /* the kind of the GPU's 8-bit floats, "ocp" or "fnuz"; only where kernels have `profiles` */
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

/* The problems of a kernel's op, or null. */
static inline const tw_pack_op* tw_pack_op_of(const tw_pack* pack, const tw_pack_kernel* kernel)
{
    return pack->kernel_size >= offsetof(tw_pack_kernel, number) + sizeof(uint64_t) ? kernel->about : 0;
}

/* HIP, or null for a library that is older than problems. */
static inline const tw_pack_device* tw_pack_device_of(const tw_pack* pack)
{
    return pack->kernel_size >= offsetof(tw_pack_kernel, number) + sizeof(uint64_t) ? pack->device : 0;
}

/* Whether the structs of a library have profiles, and its device can copy. */
static inline int tw_pack_has_profiles(const tw_pack* pack)
{
    return pack->kernel_size >= offsetof(tw_pack_kernel, profiles) + sizeof(uint64_t);
}

/* The profiles of a kernel's op that the kernel is in, as bits; 0 for a library that is older than profiles. */
static inline uint64_t tw_pack_profiles_of(const tw_pack* pack, const tw_pack_kernel* kernel)
{
    return tw_pack_has_profiles(pack) ? kernel->profiles : 0;
}

#ifdef __cplusplus
}
#endif
#endif
