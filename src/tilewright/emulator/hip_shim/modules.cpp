// Modules: code objects that a program loads itself.
#include "kernels.hpp"

#include <fstream>
#include <iterator>

using namespace stand_in;

TW_EXPORT hipError_t hipModuleLoadData(hipModule_t* module, const void* data)
{
    if(module == nullptr || data == nullptr)
        return said(hipErrorInvalidValue);
    const Image image{next_image++, data};
    const hipError_t status = ask(&Callbacks::load, current_device, image.number, data);
    if(status != hipSuccess)
        return status;
    void* const made = new char;
    const std::lock_guard<std::mutex> guard(state().lock);
    state().modules.emplace(made, Module{current_device, image, {}});
    *module = static_cast<hipModule_t>(made);
    return hipSuccess;
}

TW_EXPORT hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* data, unsigned, hipJitOption*, void**)
{
    return hipModuleLoadData(module, data);
}

TW_EXPORT hipError_t hipModuleLoad(hipModule_t* module, const char* path)
{
    if(path == nullptr)
        return said(hipErrorInvalidValue);
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if(!file.is_open() || data.empty())
        return said(hipErrorFileNotFound);
    return hipModuleLoadData(module, data.data()); // Python copies it
}

TW_EXPORT hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* kernel)
{
    if(function == nullptr || kernel == nullptr)
        return said(hipErrorInvalidValue);
    Module* found = nullptr;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto at = state().modules.find(module);
        if(at == state().modules.end())
            return said(hipErrorInvalidHandle);
        found = &at->second; // stays where it is until the module is unloaded
    }
    const hipError_t status = ask(&Callbacks::find, found->device, found->image.number, kernel);
    if(status != hipSuccess)
        return status;
    const std::lock_guard<std::mutex> guard(state().lock);
    found->functions.push_back(Function{found->image, kernel});
    *function = reinterpret_cast<hipFunction_t>(&found->functions.back());
    state().functions.insert(*function);
    return hipSuccess;
}

TW_EXPORT hipError_t hipModuleUnload(hipModule_t module)
{
    uint64_t number = 0;
    {
        const std::lock_guard<std::mutex> guard(state().lock);
        const auto at = state().modules.find(module);
        if(at == state().modules.end())
            return said(hipErrorInvalidHandle);
        number = at->second.image.number;
        for(const Function& function : at->second.functions)
            state().functions.erase(&function);
        state().modules.erase(at);
    }
    delete reinterpret_cast<char*>(module);
    return ask(&Callbacks::unload, number);
}
