// Prints how a pack ranks kernels for arguments that a file holds one after the other: `number slug microseconds`.
//
//   ranked <library> <op> <file of arguments> <type of A>
#include <tilewright/gemm.h>
#include <tilewright/grouped_conv.h>
#include <tilewright/tilewright.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

template <typename Args>
int print(const tilewright::Pack& pack, const char* file, const std::string& dtype)
{
    std::ifstream stream(file, std::ios::binary);
    Args args{};
    const auto wanted = [&](const tilewright::Kernel& kernel) { return kernel.field("dtype_a") == dtype; };
    for(int number = 0; stream.read(reinterpret_cast<char*>(&args), sizeof(args)); ++number)
    {
        const auto choices = pack.ranked(args, wanted);
        for(const tilewright::Choice& choice : choices)
            std::printf("%d %s %.17g\n", number, std::string(choice.kernel.slug()).c_str(), choice.us.value_or(-1));
        const auto best = pack.best(args, wanted);
        if(best.has_value() == choices.empty() || (best && best->slug() != choices.front().kernel.slug()))
            return 1;
    }
    return 0;
}

int main(int, char** words)
{
    try
    {
        const auto pack = tilewright::Pack::open(words[1]);
        return std::string(words[2]) == "gemm" ? print<tw_gemm_args>(pack, words[3], words[4])
                                               : print<tw_grouped_conv_args>(pack, words[3], words[4]);
    }
    catch(const tilewright::Error& error)
    {
        std::cerr << error.what() << '\n';
        return 2;
    }
}
