/* HIP for one kernel library. Linked into every one, so that none of them needs a certain version of HIP.
 *
 * HIP is found at the first call: a library that is already loaded, whatever its name is, otherwise the newest that
 * the dynamic linker finds. Static constructors register a library's kernels before that. They are kept here, so a
 * library can be loaded before HIP, and answers which problems it supports without HIP.
 *
 * Types are those of HIP's binary interface: handles are pointers, enums are ints. No name is visible outside.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc 2.34 moved these functions and gave them new versions. With the first ones, older systems load the library. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#endif
#ifdef FIRST_VERSION
__asm__(".symver dlopen, dlopen@" FIRST_VERSION);
__asm__(".symver dlsym, dlsym@" FIRST_VERSION);
__asm__(".symver dlerror, dlerror@" FIRST_VERSION);
__asm__(".symver dlclose, dlclose@" FIRST_VERSION);
#endif

#pragma GCC visibility push(hidden)

enum { NO_LIBRARY = 303 /* hipErrorSharedObjectInitFailed */, NO_FUNCTION = 801 /* hipErrorNotSupported */ };

/* Every HIP library has it, and no other library. */
static const char* const MARK = "__hipRegisterFatBinary";
static const char* const STEM = "libamdhip64";
/* The last two: a version that is newer than this file, and the place of a ROCm that ldconfig does not know. */
static const char* const NAMES[] = {
    "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so",
};

/* A kernel or a variable of a binary, as host code registered it. */
typedef struct Entry {
    struct Entry* next;
    int is_variable;
    void* host;
    char* host_name;
    const char* device_name;
    int words[3]; /* a kernel's thread limit; a variable's three flags */
    size_t bytes; /* of a variable */
    void* limits[5];
} Entry;

/* The device code of one host object. Its address is the handle that host code gets. */
typedef struct Binary {
    struct Binary* next;
    const void* code;
    void** handle; /* HIP's own; null until it is registered there */
    Entry* entries;
    Entry** end;
} Binary;

/* A function of HIP and its address, null until it is first called. */
typedef struct Slot {
    const char* name;
    _Atomic(void*) address;
} Slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static atomic_int connected;
static void* hip; /* for dlsym, once connected */
static Binary* binaries;
static char problem[640]; /* why there is no HIP, or the first function that it lacks */

static int is_hip(void* library) { return dlsym(library, MARK) != NULL; }

typedef struct Loaded {
    char** paths;
    size_t count;
} Loaded;

static int add_path(struct dl_phdr_info* info, size_t size, void* data)
{
    (void)size;
    Loaded* loaded = data;
    if(info->dlpi_name == NULL || info->dlpi_name[0] == '\0')
        return 0;
    char** paths = realloc(loaded->paths, (loaded->count + 1) * sizeof(char*));
    if(paths == NULL)
        return 1;
    loaded->paths = paths;
    paths[loaded->count] = strdup(info->dlpi_name);
    return paths[loaded->count] == NULL || (++loaded->count, 0);
}

static int has_usual_name(const char* path)
{
    const char* slash = strrchr(path, '/');
    return strncmp(slash == NULL ? path : slash + 1, STEM, strlen(STEM)) == 0;
}

/* A loaded HIP library, also one that only a part of the program sees (Python loads all libraries so), and one of a
 * wheel, whose name has a hash. Libraries with the usual name come first: asking all of them takes milliseconds. */
static void* find_loaded(void)
{
    Loaded loaded = {NULL, 0};
    dl_iterate_phdr(add_path, &loaded);
    void* found = NULL;
    for(int usual = 1; usual >= 0; --usual)
        for(size_t i = 0; i < loaded.count && found == NULL; ++i)
        {
            if(has_usual_name(loaded.paths[i]) != usual)
                continue;
            void* library = dlopen(loaded.paths[i], RTLD_LAZY | RTLD_NOLOAD);
            if(library != NULL && is_hip(library))
                found = library; /* stays open: it must not be unloaded now */
            else if(library != NULL)
                dlclose(library);
        }
    for(size_t i = 0; i < loaded.count; ++i)
        free(loaded.paths[i]);
    free(loaded.paths);
    return found;
}

static void* load_new(void)
{
    char other[384] = "";
    for(size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); ++i)
    {
        void* library = dlopen(NAMES[i], RTLD_NOW | RTLD_LOCAL);
        if(library != NULL)
            return library;
        const char* said = dlerror();
        /* Not that there is no such file, but that it cannot be loaded. */
        if(said != NULL && other[0] == '\0' && strncmp(said, NAMES[i], strlen(NAMES[i])) != 0)
            snprintf(other, sizeof(other), " (%s: %s)", NAMES[i], said);
    }
    if(problem[0] == '\0')
        snprintf(problem, sizeof(problem),
                 "no HIP library was found: none is loaded in this process, and libamdhip64.so.7, .6 and .5 are "
                 "neither known to the dynamic linker nor in /opt/rocm/lib%s. Install ROCm, or add the folder of its "
                 "libraries to LD_LIBRARY_PATH.", other);
    return NULL;
}

/* Null for a function that this HIP does not have. */
static void* look_up(const char* name)
{
    void* address = dlsym(hip, name);
    if(address == NULL && problem[0] == '\0')
        snprintf(problem, sizeof(problem), "this process's HIP library has no function %s. Use a newer HIP.", name);
    return address;
}

typedef void** (*register_binary_fn)(const void*);
typedef void (*unregister_binary_fn)(void**);
typedef void (*register_function_fn)(void**, void*, char*, const char*, unsigned, void*, void*, void*, void*, int*);
typedef void (*register_variable_fn)(void**, void*, char*, char*, int, size_t, int, int);

static void register_entry(const Binary* binary, const Entry* entry)
{
    if(entry->is_variable)
    {
        register_variable_fn call = (register_variable_fn)look_up("__hipRegisterVar");
        if(call != NULL)
            call(binary->handle, entry->host, entry->host_name, (char*)entry->device_name, entry->words[0],
                 entry->bytes, entry->words[1], entry->words[2]);
        return;
    }
    register_function_fn call = (register_function_fn)look_up("__hipRegisterFunction");
    if(call != NULL)
        call(binary->handle, entry->host, entry->host_name, entry->device_name, (unsigned)entry->words[0],
             entry->limits[0], entry->limits[1], entry->limits[2], entry->limits[3], entry->limits[4]);
}

static void register_binary(Binary* binary)
{
    register_binary_fn call = (register_binary_fn)look_up(MARK);
    if(call == NULL)
        return;
    binary->handle = call(binary->code);
    for(const Entry* entry = binary->entries; entry != NULL; entry = entry->next)
        register_entry(binary, entry);
}

static void unregister_binary(Binary* binary)
{
    unregister_binary_fn call = (unregister_binary_fn)look_up("__hipUnregisterFatBinary");
    if(call != NULL && binary->handle != NULL)
        call(binary->handle);
    binary->handle = NULL;
}

static void unregister_all(void)
{
    pthread_mutex_lock(&lock);
    for(Binary* binary = binaries; binary != NULL; binary = binary->next)
        unregister_binary(binary);
    pthread_mutex_unlock(&lock);
}

/* Finds HIP and registers all binaries. The lock is held. A failure is not final: the program may load HIP later. */
static int connect_hip(void)
{
    if(connected)
        return 1;
    if(is_hip(RTLD_DEFAULT))
        hip = RTLD_DEFAULT;
    else if((hip = find_loaded()) == NULL && (hip = load_new()) == NULL)
        return 0;
    connected = 1;
    problem[0] = '\0';
    /* Handlers run in reverse order: this one before HIP's own, also if HIP was loaded after this library. */
    atexit(unregister_all);
    for(Binary* binary = binaries; binary != NULL; binary = binary->next)
        register_binary(binary);
    return 1;
}

/* A child of a fork has one thread. If another thread of the parent held the lock, its work is done again. */
static void repair_lock(void)
{
    if(pthread_mutex_trylock(&lock) == 0)
    {
        pthread_mutex_unlock(&lock);
        return;
    }
    pthread_mutex_init(&lock, NULL);
    connected = 0;
}

/* glibc's part of pthread_atfork that is in the shared library. Weak: another C library may lack it. */
extern void* __dso_handle;
__attribute__((weak, visibility("default"))) int
__register_atfork(void (*)(void), void (*)(void), void (*)(void), void*);

__attribute__((constructor)) static void watch_forks(void)
{
    if(__register_atfork != NULL)
        __register_atfork(NULL, NULL, repair_lock, &__dso_handle);
}

static void* find_function(Slot* slot)
{
    void* address = atomic_load_explicit(&slot->address, memory_order_acquire);
    if(address != NULL)
        return address;
    pthread_mutex_lock(&lock);
    if(connect_hip() && (address = look_up(slot->name)) != NULL)
        atomic_store_explicit(&slot->address, address, memory_order_release);
    pthread_mutex_unlock(&lock);
    return address;
}

/* The status of a call that could not be made. */
static int give_status(void) { return connected ? NO_FUNCTION : NO_LIBRARY; }

/* Why a function could not be called; null if all could. */
const char* tilewright_hip_problem(void) { return problem[0] == '\0' ? NULL : problem; }

void** __hipRegisterFatBinary(const void* code)
{
    Binary* binary = calloc(1, sizeof(Binary));
    if(binary == NULL)
        return NULL;
    binary->code = code;
    binary->end = &binary->entries;
    pthread_mutex_lock(&lock);
    binary->next = binaries;
    binaries = binary;
    if(connected)
        register_binary(binary);
    pthread_mutex_unlock(&lock);
    return (void**)binary;
}

static void add_entry(void** handle, const Entry* entry)
{
    Binary* binary = (Binary*)handle;
    Entry* kept = malloc(sizeof(Entry));
    if(binary == NULL || kept == NULL)
    {
        free(kept);
        return;
    }
    *kept = *entry;
    pthread_mutex_lock(&lock);
    *binary->end = kept;
    binary->end = &kept->next;
    if(connected)
        register_entry(binary, kept);
    pthread_mutex_unlock(&lock);
}

void __hipRegisterFunction(void** handle, const void* host, char* host_name, const char* device_name, unsigned threads,
                           void* thread, void* block, void* block_size, void* grid_size, int* wave_size)
{
    const Entry entry = {.host = (void*)host, .host_name = host_name, .device_name = device_name,
                         .words = {(int)threads}, .limits = {thread, block, block_size, grid_size, wave_size}};
    add_entry(handle, &entry);
}

void __hipRegisterVar(void** handle, void* host, char* host_name, char* device_name, int external, size_t bytes,
                      int constant, int global)
{
    const Entry entry = {.is_variable = 1, .host = host, .host_name = host_name, .device_name = device_name,
                         .words = {external, constant, global}, .bytes = bytes};
    add_entry(handle, &entry);
}

void __hipUnregisterFatBinary(void** handle)
{
    Binary* binary = (Binary*)handle;
    if(binary == NULL)
        return;
    pthread_mutex_lock(&lock);
    if(connected)
        unregister_binary(binary);
    Binary** place = &binaries;
    while(*place != binary)
        place = &(*place)->next;
    *place = binary->next;
    pthread_mutex_unlock(&lock);
    for(Entry* entry = binary->entries; entry != NULL;)
    {
        Entry* next = entry->next;
        free(entry);
        entry = next;
    }
    free(binary);
}

const char* hipGetErrorString(int status)
{
    static Slot slot = {"hipGetErrorString", NULL};
    const char* (*call)(int) = (const char* (*)(int))find_function(&slot);
    const char* missing = tilewright_hip_problem();
    return call != NULL ? call(status) : missing != NULL ? missing : "unknown HIP error";
}

const char* hipGetErrorName(int status)
{
    static Slot slot = {"hipGetErrorName", NULL};
    const char* (*call)(int) = (const char* (*)(int))find_function(&slot);
    return call != NULL ? call(status) : "hipErrorSharedObjectInitFailed";
}

#define FORWARD(name, parameters, arguments)                                \
    int name parameters                                                     \
    {                                                                       \
        static Slot slot = {#name, NULL};                                   \
        int(*call) parameters = (int(*) parameters)find_function(&slot);    \
        return call != NULL ? call arguments : give_status();               \
    }

typedef struct Dim3 {
    uint32_t x, y, z;
} Dim3;

/* What host code may call: launches, and what a launcher asks and prepares. Another function is an error of the linker;
 * add a line for it. Unused ones are not linked. */
/* clang-format off */
FORWARD(__hipPushCallConfiguration, (Dim3 grid, Dim3 block, size_t lds, void* stream), (grid, block, lds, stream))
FORWARD(__hipPopCallConfiguration, (Dim3* grid, Dim3* block, size_t* lds, void** stream), (grid, block, lds, stream))
FORWARD(hipLaunchKernel, (const void* host, Dim3 grid, Dim3 block, void** args, size_t lds, void* stream),
        (host, grid, block, args, lds, stream))
FORWARD(hipLaunchCooperativeKernel, (const void* host, Dim3 grid, Dim3 block, void** args, unsigned lds, void* stream),
        (host, grid, block, args, lds, stream))
FORWARD(hipExtLaunchKernel, (const void* host, Dim3 grid, Dim3 block, void** args, size_t lds, void* stream,
        void* start, void* stop, int flags), (host, grid, block, args, lds, stream, start, stop, flags))
FORWARD(hipLaunchKernelExC, (const void* config, const void* host, void** args), (config, host, args))
FORWARD(hipFuncSetAttribute, (const void* host, int attribute, int value), (host, attribute, value))
FORWARD(hipFuncGetAttributes, (void* attributes, const void* host), (attributes, host))
FORWARD(hipOccupancyMaxActiveBlocksPerMultiprocessor, (int* blocks, const void* host, int threads, size_t lds),
        (blocks, host, threads, lds))
FORWARD(hipGetLastError, (void), ())
FORWARD(hipPeekAtLastError, (void), ())
FORWARD(hipGetDeviceCount, (int* count), (count))
FORWARD(hipGetDevice, (int* device), (device))
FORWARD(hipSetDevice, (int device), (device))
FORWARD(hipDeviceSynchronize, (void), ())
FORWARD(hipDeviceGetAttribute, (int* value, int attribute, int device), (value, attribute, device))
/* The structure of HIP 5, which later versions have under this name, and that of HIP 6 and 7. */
FORWARD(hipGetDeviceProperties, (void* properties, int device), (properties, device))
FORWARD(hipGetDevicePropertiesR0600, (void* properties, int device), (properties, device))
FORWARD(hipMalloc, (void** address, size_t bytes), (address, bytes))
FORWARD(hipMallocAsync, (void** address, size_t bytes, void* stream), (address, bytes, stream))
FORWARD(hipFree, (void* address), (address))
FORWARD(hipFreeAsync, (void* address, void* stream), (address, stream))
FORWARD(hipHostMalloc, (void** address, size_t bytes, unsigned flags), (address, bytes, flags))
FORWARD(hipHostFree, (void* address), (address))
FORWARD(hipMemcpy, (void* to, const void* from, size_t bytes, int kind), (to, from, bytes, kind))
FORWARD(hipMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, void* stream),
        (to, from, bytes, kind, stream))
FORWARD(hipMemset, (void* to, int value, size_t bytes), (to, value, bytes))
FORWARD(hipMemsetAsync, (void* to, int value, size_t bytes, void* stream), (to, value, bytes, stream))
FORWARD(hipMemset2DAsync, (void* to, size_t pitch, int value, size_t width, size_t height, void* stream),
        (to, pitch, value, width, height, stream))
FORWARD(hipMemsetD32Async, (void* to, int value, size_t count, void* stream), (to, value, count, stream))
FORWARD(hipGetSymbolAddress, (void** address, const void* symbol), (address, symbol))
FORWARD(hipMemcpyToSymbolAsync, (const void* symbol, const void* from, size_t bytes, size_t offset, int kind,
        void* stream), (symbol, from, bytes, offset, kind, stream))
FORWARD(hipStreamCreate, (void** stream), (stream))
FORWARD(hipStreamCreateWithFlags, (void** stream, unsigned flags), (stream, flags))
FORWARD(hipStreamDestroy, (void* stream), (stream))
FORWARD(hipStreamSynchronize, (void* stream), (stream))
FORWARD(hipStreamWaitEvent, (void* stream, void* event, unsigned flags), (stream, event, flags))
FORWARD(hipStreamIsCapturing, (void* stream, int* status), (stream, status))
FORWARD(hipExtStreamGetCUMask, (void* stream, uint32_t count, uint32_t* mask), (stream, count, mask))
FORWARD(hipEventCreate, (void** event), (event))
FORWARD(hipEventCreateWithFlags, (void** event, unsigned flags), (event, flags))
FORWARD(hipEventDestroy, (void* event), (event))
FORWARD(hipEventRecord, (void* event, void* stream), (event, stream))
FORWARD(hipEventSynchronize, (void* event), (event))
FORWARD(hipEventElapsedTime, (float* ms, void* start, void* stop), (ms, start, stop))
/* clang-format on */
