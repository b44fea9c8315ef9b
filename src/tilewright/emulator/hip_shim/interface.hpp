// What the stand-in library and Python share. interface.py has the same structures in the same order.
#ifndef TILEWRIGHT_STAND_IN_INTERFACE_HPP
#define TILEWRIGHT_STAND_IN_INTERFACE_HPP

#include <cstdint>

struct DeviceFacts
{
    char name[64];
    char arch[64];
    uint64_t memory_bytes;
    uint64_t lds_bytes;      // of a work-group
    uint64_t lds_unit_bytes; // of a unit
    int32_t wave_size;
    int32_t units;
    int32_t max_block_threads;
    int32_t max_unit_threads;
    int32_t block_registers;
    int32_t clock_khz;
    int32_t l2_bytes;
    int32_t major;
    int32_t minor;
};

struct LaunchRequest
{
    int32_t device;
    int32_t cooperative; // all work-groups run together
    uint64_t image; // a number that no other image of this process has
    const void* data;
    const char* kernel;
    uint32_t grid[3];  // in work-groups
    uint32_t block[3]; // in threads
    uint64_t dynamic_lds;
    void** arguments;   // one pointer per argument, or null
    const void* packed; // all arguments as they lie in memory, or null
    uint64_t packed_bytes;
};

// What a kernel needs, as its code object says.
struct KernelFacts
{
    int32_t registers; // vector registers of a lane
    int32_t max_threads;
    uint64_t lds_bytes;
    uint64_t private_bytes; // of a lane
};

// The allocation around an address; `bytes` is 0 if there is none.
struct AllocationRange
{
    uint64_t start;
    uint64_t bytes;
    int32_t device;
};

// A source to compile for a device, with headers by name, options of the compiler, and expressions whose symbols are asked
// for. The results are passed to `keep`: see the kinds below.
constexpr int RESULT_LOG = 0, RESULT_CODE = 1, RESULT_NAME = 2;

struct CompileRequest
{
    int32_t device;
    const char* source;
    const char* name;
    int32_t header_count;
    const char* const* headers;
    const char* const* header_names;
    int32_t option_count;
    const char* const* options;
    int32_t expression_count;
    const char* const* expressions;
    void (*keep)(void* program, int kind, const char* data, uint64_t bytes);
    void* program;
};

// Each writes a hipError_t to `status`, the last argument, when it ends well or badly. If it does not get that far, `status`
// stays as it was. `device` is the one whose caller gets to know what went wrong.
struct Callbacks
{
    void (*launch)(const LaunchRequest*, int* status);
    void (*occupancy)(const LaunchRequest*, int* blocks, int* status);
    void (*load)(int device, uint64_t image, const void* data, int* status);
    void (*find)(int device, uint64_t image, const char* kernel, int* status);
    void (*unload)(uint64_t image, int* status);
    void (*allocate)(int device, uint64_t bytes, void** address, int* status);
    void (*release)(int device, void* address, int* status);
    void (*copy)(int device, void* target, const void* source, uint64_t bytes, int direction, int* status);
    void (*fill)(int device, void* target, uint64_t pitch, int value, uint64_t width, uint64_t height, int* status);
    // The arguments of a launch as they lie in memory; `bytes` is their number, also if `room` is less.
    void (*pack)(const LaunchRequest*, void* target, uint64_t room, uint64_t* bytes, int* status);
    void (*facts)(const LaunchRequest*, KernelFacts*, int* status);
    void (*variable)(int device, uint64_t image, const void* data, const char* name, void** address, uint64_t* bytes,
                     int* status);
    void (*range)(int device, const void* address, AllocationRange*, int* status);
    void (*room)(int device, uint64_t* free_bytes, int* status);
    void (*heap)(int device, uint64_t* bytes, int set, int* status); // of the kernels' malloc
    void (*compile)(const CompileRequest*, int* status); // writes a hiprtcResult
    void (*missing)(const char* call, int* status); // a call that is not implemented
    void (*finish)(int* status);                    // the process ends
};

#endif
