// Calls every part of tilewright.hpp on a pack of stand-in kernels; ends with 1 at the first thing that is wrong.
#include <tilewright/gemm.h>
#include <tilewright/tilewright.hpp>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using tilewright::Error;
using tilewright::Kernel;
using tilewright::KernelError;
using tilewright::Pack;

static_assert(!std::is_copy_constructible_v<Pack> && !std::is_copy_assignable_v<Pack>);
static_assert(std::is_nothrow_move_constructible_v<Pack> && std::is_copy_constructible_v<Kernel>);

#define CHECK(truth)                                                            \
    if(!(truth))                                                                \
    {                                                                           \
        std::cerr << "line " << __LINE__ << " is wrong: " << #truth << '\n';    \
        std::exit(1);                                                           \
    }

template <typename Call>
std::string error_of(const Call& call)
{
    try
    {
        call();
    }
    catch(const Error& error)
    {
        return error.what();
    }
    return "nothing was thrown";
}

template <typename Call>
int status_of(const Call& call)
{
    try
    {
        call();
    }
    catch(const KernelError& error)
    {
        return error.status();
    }
    return -1;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

tw_gemm_args args_with(std::int64_t m)
{
    auto args = tilewright::make_args<tw_gemm_args>();
    args.m    = m;
    return args;
}

void look_around(const Pack& pack)
{
    CHECK(pack.gpu() == "gfx942" && pack.name() == "tilewright_pack" && pack.size() == 2);
    for(const Kernel& kernel : pack)
        CHECK(pack.find(kernel.slug())->symbol() == kernel.symbol());
    CHECK(!pack.find("") && !pack.find("gemm") && !pack.find("zzz"));
    const auto padded = pack.find_first("gemm", [](const Kernel& k) { return k.field("pad_m") == "true"; });
    CHECK(padded && padded->field("block") == "[128,128,32]" && padded->field("dtype_a") == "fp16");
    CHECK(has(std::string(padded->config()), "\"pad_m\":true"));
    CHECK(!pack.find_first("gemm", [](const Kernel&) { return false; }));
    CHECK(has(error_of([&] { padded->field("pad"); }), "unknown field 'pad'"));
    CHECK(has(error_of([&] { padded->field("pad"); }), "pad_k, pad_m, pad_n"));
    CHECK(has(error_of([&] { pack.find_first("conv", [](const Kernel&) { return true; }); }), "It has: gemm"));
}

void call(const Kernel& kernel)
{
    CHECK(kernel.supports(args_with(128)));
    CHECK(!kernel.supports(args_with(100)) && kernel.message() == "m = 100");
    CHECK(kernel.workspace_size(args_with(128)) == 512);
    CHECK(status_of([&] { kernel.run(args_with(128), nullptr); }) == TW_HIP_ERROR);
    CHECK(has(error_of([&] { kernel.run(args_with(128), nullptr); }), "run failed: no device for m = 128"));
    const tw_gemm_args unusable{};
    CHECK(status_of([&] { kernel.supports(unusable); }) == TW_BAD_ARGS);
}

void call_from_threads(const Pack& pack)
{
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for(int number = 0; number < 8; ++number)
        threads.emplace_back([&, number] {
            const Kernel kernel        = *pack.begin();
            const std::string expected = "m = " + std::to_string(64 * number + 1);
            for(int i = 0; i < 10000; ++i)
                if(kernel.supports(args_with(64 * number + 1)) || kernel.message() != expected)
                    ++wrong;
        });
    for(std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

// `others`: a folder with libraries that are no packs, or not what they should be.
void open_what_is_no_pack(const std::filesystem::path& folder, const std::filesystem::path& others)
{
    CHECK(has(error_of([&] { Pack::open(folder); }), "is a folder: say which GPU"));
    CHECK(has(error_of([&] { Pack::open(folder / "lib", "gfx942"); }), "Is it a pack?"));
    CHECK(has(error_of([&] { Pack::open(folder, "gfx950"); }), "0 libraries for 'gfx950', need 1. It has: libtile"));
    CHECK(has(error_of([&] { Pack::open(folder, "gfx942:xnack-"); }), "named without features"));
    CHECK(has(error_of([&] { Pack::open(folder / "nothing.so"); }), "cannot load a pack"));
    CHECK(has(error_of([&] { Pack::open(others / "lib" / "lib_empty.so"); }), "it has no tw_pack_table"));
    CHECK(has(error_of([&] { Pack::open(others / "lib" / "lib_newer.so"); }), "schema 2 with 4096 bytes"));
    CHECK(has(error_of([&] { Pack::open(others / "lib" / "lib_short.so"); }), "schema 1 with 8 bytes"));
    CHECK(has(error_of([&] { Pack::open(others, "gfx950"); }), "is for gfx942, not for gfx950"));
    CHECK(has(error_of([&] { Pack::open(others, "gfx908"); }), "2 libraries for 'gfx908', need 1"));
}

int main(int count, char** words)
{
    CHECK(count == 3);
    const std::filesystem::path folder = words[1];
    Pack opened = Pack::open(folder, "gfx942");
    Pack pack   = std::move(opened);
    look_around(pack);
    for(const Kernel& kernel : pack)
        call(kernel);
    call_from_threads(pack);
    pack = Pack::open(folder / "lib" / "libtilewright_pack_gfx90a.so");
    CHECK(pack.gpu() == "gfx90a" && pack.size() == 1);
    open_what_is_no_pack(folder, words[2]);
    std::cout << "all is right\n";
}
