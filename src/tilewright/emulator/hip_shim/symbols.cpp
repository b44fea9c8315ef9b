// Variables of device code: registered by host code, or found in modules.
#include "state.hpp"

#include <cstring>

using namespace stand_in;

namespace {

hipError_t find_variable(const void* symbol, void** address, size_t* bytes)
{
    Variable variable;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto found = state().variables.find(symbol);
        if(found == state().variables.end())
            return said(hipErrorInvalidSymbol);
        variable = found->second;
    }
    *bytes = variable.bytes;
    if(variable.managed != nullptr)
    {
        *address = *variable.managed;
        return hipSuccess;
    }
    uint64_t stated         = 0;
    const hipError_t status = ask(&Callbacks::variable, current_device, variable.image.number, variable.image.data,
                                  variable.name.c_str(), address, &stated);
    return status;
}

// The place that a copy to or from a variable means.
hipError_t place_in(const void* symbol, size_t bytes, size_t offset, char** place)
{
    void* address = nullptr;
    size_t size   = 0;
    if(const hipError_t status = find_variable(symbol, &address, &size); status != hipSuccess)
        return status;
    if(offset > size || bytes > size - offset)
        return said(hipErrorInvalidValue);
    *place = static_cast<char*>(address) + offset;
    return hipSuccess;
}

} // namespace

// Writes the addresses of managed variables into the code of an image, once for each device.
hipError_t stand_in::bind_managed(int device, const Image& image)
{
    std::vector<std::pair<const void*, Variable>> unbound;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        for(const auto& [host, variable] : state().variables)
            if(variable.managed != nullptr && variable.image.number == image.number &&
               (variable.bound_in >> device & 1) == 0)
                unbound.emplace_back(host, variable);
    }
    for(const auto& [host, variable] : unbound)
    {
        void* pointer  = nullptr;
        uint64_t bytes = 0;
        const hipError_t status =
            ask(&Callbacks::variable, device, image.number, image.data, variable.name.c_str(), &pointer, &bytes);
        if(status != hipSuccess)
            return status;
        std::memcpy(pointer, variable.managed, sizeof(void*));
        const std::lock_guard<std::mutex> guard(state().lock);
        state().variables[host].bound_in |= uint64_t(1) << device;
    }
    return hipSuccess;
}

TW_EXPORT void __hipRegisterVar(void** handle, void* host, char*, char* name, int, size_t bytes, int, int)
{
    const std::lock_guard<std::mutex> guard(state().lock);
    state().variables[host] = Variable{*reinterpret_cast<Image*>(handle), name, bytes};
}

// The host's pointer has to be set before `main`, so the memory is allocated here.
TW_EXPORT void __hipRegisterManagedVar(void** handle, void** pointer, void* initial, const char* name, size_t bytes, unsigned)
{
    void* memory = nullptr;
    if(hipMallocManaged(&memory, bytes, hipMemAttachGlobal) != hipSuccess)
        return;
    std::memcpy(memory, initial, bytes);
    *pointer = memory;
    const std::lock_guard<std::mutex> guard(state().lock);
    state().variables[pointer] = Variable{*reinterpret_cast<Image*>(handle), name, bytes, pointer};
}

TW_EXPORT hipError_t hipGetSymbolAddress(void** address, const void* symbol)
{
    size_t bytes = 0;
    return address == nullptr ? said(hipErrorInvalidValue) : find_variable(symbol, address, &bytes);
}

TW_EXPORT hipError_t hipGetSymbolSize(size_t* bytes, const void* symbol)
{
    void* address = nullptr;
    return bytes == nullptr ? said(hipErrorInvalidValue) : find_variable(symbol, &address, bytes);
}

TW_EXPORT hipError_t hipMemcpyToSymbol(const void* symbol, const void* source, size_t bytes, size_t offset,
                                       hipMemcpyKind direction)
{
    char* place             = nullptr;
    const hipError_t status = place_in(symbol, bytes, offset, &place);
    return status == hipSuccess ? hipMemcpy(place, source, bytes, direction) : status;
}

TW_EXPORT hipError_t hipMemcpyFromSymbol(void* target, const void* symbol, size_t bytes, size_t offset,
                                         hipMemcpyKind direction)
{
    char* place             = nullptr;
    const hipError_t status = place_in(symbol, bytes, offset, &place);
    return status == hipSuccess ? hipMemcpy(target, place, bytes, direction) : status;
}

TW_EXPORT hipError_t hipMemcpyToSymbolAsync(const void* symbol, const void* source, size_t bytes, size_t offset,
                                            hipMemcpyKind direction, hipStream_t stream)
{
    char* place             = nullptr;
    const hipError_t status = place_in(symbol, bytes, offset, &place);
    return status == hipSuccess ? hipMemcpyAsync(place, source, bytes, direction, stream) : status;
}

TW_EXPORT hipError_t hipMemcpyFromSymbolAsync(void* target, const void* symbol, size_t bytes, size_t offset,
                                              hipMemcpyKind direction, hipStream_t stream)
{
    char* place             = nullptr;
    const hipError_t status = place_in(symbol, bytes, offset, &place);
    return status == hipSuccess ? hipMemcpyAsync(target, place, bytes, direction, stream) : status;
}

TW_EXPORT hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, size_t* bytes, hipModule_t module, const char* name)
{
    if(name == nullptr)
        return said(hipErrorInvalidValue);
    Image image;
    int device = 0;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto found = state().modules.find(module);
        if(found == state().modules.end())
            return said(hipErrorInvalidHandle);
        image  = found->second.image;
        device = found->second.device;
    }
    void* place             = nullptr;
    uint64_t size           = 0;
    const hipError_t status = ask(&Callbacks::variable, device, image.number, image.data, name, &place, &size);
    if(status == hipSuccess && address != nullptr)
        *address = place;
    if(status == hipSuccess && bytes != nullptr)
        *bytes = size;
    return status;
}
