// Keep the kernels that an integration needs, such as flash-attention or PyTorch.
#include "tensors.hpp"

int main(int, char** words)
{
    const tilewright::Registry registry(tilewright::Pack::open(words[1], "gfx942"));
    for(const char* name : {"ck_default", "flash", "pytorch", "aiter"})
        std::cout << name << ": " << registry.for_profile(name).size() << " of " << registry.size() << " kernels\n";

    // The numbers by which CK's generators know a profile name it, too.
    const tilewright::Registry flash = registry.for_profile("2");
    for(const tilewright::Registry::Entry& entry : flash.entries())
        if(!entry.kernel.in_profile("flash"))
            return 1;
    std::cout << flash.entries().front().kernel.slug() << " is in";
    for(const std::string_view name : flash.entries().front().kernel.profiles())
        std::cout << ' ' << name;
    std::cout << '\n';

    try
    {
        registry.for_profile("vllm");
        return 1;
    }
    catch(const tilewright::Error& error)
    {
        std::cout << error.what() << '\n';
    }
    return 0;
}
