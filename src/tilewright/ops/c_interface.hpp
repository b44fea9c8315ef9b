// What the C functions of every op share: messages of refusals, and the functions' definitions.
//
// An op's launcher is a class template over a kernel's Description, with static functions of the op's arguments:
//   check(args)                  whether the struct itself is usable
//   supports(args)               whether this kernel computes the problem
//   workspace_size(args, bytes)  what it needs besides its tensors
//   run(args, stream)
//   name_instances()             names every device function that run can launch
#ifndef TILEWRIGHT_C_INTERFACE_HPP
#define TILEWRIGHT_C_INTERFACE_HPP

#include <cstdint>
#include <cstdio>

namespace tilewright_call {

inline thread_local char last_message[256] = "";

inline int fail(int status, const char* format, long long x = 0, long long y = 0, long long z = 0)
{
    std::snprintf(last_message, sizeof(last_message), format, x, y, z);
    return status;
}

} // namespace tilewright_call

#if defined(__HIP_DEVICE_COMPILE__) && !defined(TILEWRIGHT_WHOLE_HOST)
// The device pass needs nothing of the host code but the names of what it launches.
#define TILEWRIGHT_EXPORT(symbol, launcher, arguments) \
    inline void symbol##_instances() { launcher<symbol::Description>::name_instances(); }
#else
#define TILEWRIGHT_EXPORT(symbol, launcher, arguments)                                                            \
    extern "C" {                                                                                                  \
    __attribute__((visibility("default"))) int symbol##_supports(const arguments* args)                           \
    {                                                                                                             \
        return launcher<symbol::Description>::supports(args);                                                     \
    }                                                                                                             \
    __attribute__((visibility("default"))) int symbol##_workspace_size(const arguments* args, uint64_t* bytes)    \
    {                                                                                                             \
        return launcher<symbol::Description>::workspace_size(args, bytes);                                        \
    }                                                                                                             \
    __attribute__((visibility("default"))) int symbol##_run(const arguments* args, void* stream)                  \
    {                                                                                                             \
        return launcher<symbol::Description>::run(args, static_cast<hipStream_t>(stream));                        \
    }                                                                                                             \
    __attribute__((visibility("default"))) const char* symbol##_message(void)                                     \
    {                                                                                                             \
        return tilewright_call::last_message;                                                                     \
    }                                                                                                             \
    __attribute__((visibility("default"))) const char* symbol##_name(void) { return symbol::Description::name; }  \
    }
#endif

#endif
