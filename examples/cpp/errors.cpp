// Errors are exceptions with a text that you can show: the fact, the number, the known values.
#include "tensors.hpp"

template <typename Call>
int fails(const Call& call)
{
    try
    {
        call();
    }
    catch(const tilewright::Error& error)
    {
        const std::string text = error.what();
        std::cout << "- " << text.substr(0, text.find('\n')) << '\n';
        return 1;
    }
    return 0;
}

int main(int, char** words)
{
    using tilewright::gemm::Problem;
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = Problem().m(64).n(64).k(64).dtype("fp16").layout("rcr");
    int failed         = 0;
    failed += fails([] { Problem().layout("xyz"); });                                  // an unknown name
    failed += fails([&] { pack.plan(Problem(problem).m(0)); });                        // a value out of range
    failed += fails([&] { pack.plan(Problem().m(64).n(64).k(64).layout("rcr")); });    // a field that is missing
    failed += fails([&] { pack.plan(Problem(problem).dtype("int8").layout("ccr")); }); // no kernel: the reasons follow
    failed += fails([&] { pack.plan(problem)->run({nullptr}, nullptr); });             // too few tensors
    failed += fails([&] { tilewright::Pack::open(words[1], "gfx90a"); });              // no library for this GPU
    return failed == 6 ? 0 : 1;
}
