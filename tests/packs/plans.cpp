// Plans problems that a file holds one after the other, and runs the plans with made-up addresses.
//
//   plans <library> <op> <file of problems> <file for launches>
//   plans <library> api      calls every part of the front end instead; ends with 1 at the first thing that is wrong
//
// Prints for each problem `kernels | intermediates | bytes of memory`, or `none: <first line of the error>`.
#include <tilewright/fmha.hpp>
#include <tilewright/gemm.hpp>
#include <tilewright/gemm_quant.hpp>
#include <tilewright/grouped_conv.hpp>
#include <tilewright/grouped_gemm.hpp>
#include <tilewright/moe_sorting.hpp>
#include <tilewright/norm.hpp>
#include <tilewright/topk.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "api_checks.hpp"

template <typename Problem>
int print(const tilewright::Pack& pack, const char* file, const char* launches)
{
    std::ifstream stream(file, std::ios::binary);
    std::FILE* to = std::fopen(launches, "w");
    typename Problem::Values values;
    while(stream.read(reinterpret_cast<char*>(&values), sizeof(values)))
    {
        const Problem problem(values);
        try
        {
            const auto plan = pack.plan(problem);
            for(const tilewright::Stage& stage : plan->stages())
                std::cout << stage.kernel.slug() << ' ';
            std::cout << '|';
            for(const tilewright::Tensor& tensor : plan->intermediates())
                std::cout << ' ' << tensor.name << '=' << tensor.bytes;
            std::cout << " | " << plan->memory_size() << '\n';
            if(pack.plan(problem) != plan)
                return 1;
            const auto best = pack.best(problem);
            if(plan->stages().size() == 1 && best && *best != plan->stages().front().kernel)
                return 1;
            std::vector<const void*> addresses;
            for(std::size_t i = 0; i < plan->tensors().size(); ++i)
                addresses.push_back(reinterpret_cast<const void*>(0x1000 * (i + 1)));
            tilewright::RunOptions options;
            options.memory   = reinterpret_cast<void*>(0x10000000);
            options.prepared = true;
            plan->run(addresses, to, options);
            std::fprintf(to, "end\n");
        }
        catch(const tilewright::Error& error)
        {
            const std::string text = error.what();
            std::cout << "none: " << text.substr(0, text.find('\n')) << '\n';
        }
    }
    std::fclose(to);
    return 0;
}

int main(int, char** words)
{
    try
    {
        const auto pack      = tilewright::Pack::open(words[1]);
        const std::string op = words[2];
        if(op == "api")
            return check_api(words[1]);
        if(op == "gemm")
            return print<tilewright::gemm::Problem>(pack, words[3], words[4]);
        if(op == "gemm_quant")
            return print<tilewright::gemm_quant::Problem>(pack, words[3], words[4]);
        if(op == "grouped_gemm")
            return print<tilewright::grouped_gemm::Problem>(pack, words[3], words[4]);
        if(op == "fmha")
            return print<tilewright::fmha::Problem>(pack, words[3], words[4]);
        if(op == "grouped_conv")
            return print<tilewright::grouped_conv::Problem>(pack, words[3], words[4]);
        if(op == "moe_sorting")
            return print<tilewright::moe_sorting::Problem>(pack, words[3], words[4]);
        if(op == "topk")
            return print<tilewright::topk::Problem>(pack, words[3], words[4]);
        if(op == "norm")
            return print<tilewright::norm::Problem>(pack, words[3], words[4]);
        std::cerr << "unknown op " << op << '\n';
        return 2;
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 2;
    }
}
