// Host references and profiles of a library of stand-in kernels.
//
//   references <library> <op> <file of problems> <file for numbers>   inputs and expected outputs of each problem
//   references <library> profiles <name>…                             kernels by profile
#include <tilewright/fmha.hpp>
#include <tilewright/gemm_reference.hpp>
#include <tilewright/grouped_conv_reference.hpp>

#include <fstream>
#include <iostream>
#include <string>

template <typename Problem>
int write(const tilewright::Pack& pack, const char* file, const char* numbers, std::string_view fp8)
{
    std::ifstream stream(file, std::ios::binary);
    std::ofstream to(numbers, std::ios::binary);
    typename Problem::Values values;
    while(stream.read(reinterpret_cast<char*>(&values), sizeof(values)))
    {
        auto tensors = tilewright::make_inputs(pack.tensors(Problem(values)), fp8, 7);
        compute_reference(values, tensors); // the file has completed problems
        for(const tilewright::HostTensor& tensor : tensors)
        {
            std::cout << tensor.about.name << '=' << tensor.values.size() << ' ';
            to.write(reinterpret_cast<const char*>(tensor.values.data()),
                     static_cast<std::streamsize>(tensor.values.size() * sizeof(double)));
        }
        std::cout << '\n';
    }
    return 0;
}

int main(int count, char** words)
{
    try
    {
        const auto pack      = tilewright::Pack::open(words[1]);
        const std::string op = words[2];
        if(op == "gemm")
            return write<tilewright::gemm::Problem>(pack, words[3], words[4], pack.table()->fp8);
        if(op == "grouped_conv")
            return write<tilewright::grouped_conv::Problem>(pack, words[3], words[4], pack.table()->fp8);
        const tilewright::Registry registry(tilewright::Pack::open(words[1]));
        for(int i = 3; i < count; ++i)
        {
            std::cout << words[i] << ':';
            const auto found = registry.for_profile(words[i]);
            for(const auto& entry : found.entries())
                std::cout << ' ' << entry.kernel.slug();
            std::cout << '\n';
        }
        for(const auto& entry : registry.entries())
            for(const std::string_view name : entry.kernel.profiles())
                std::cout << "- " << entry.kernel.slug() << ' ' << name << '\n';
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 2;
    }
}
