// Calls problems, reasons, plans, registries and timing on a library of stand-in kernels.
#pragma once

#include <tilewright/fmha.hpp>
#include <tilewright/gemm.hpp>
#include <tilewright/grouped_conv.hpp>

#include <iostream>
#include <string>
#include <thread>
#include <vector>

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
    catch(const tilewright::Error& error)
    {
        return error.what();
    }
    return "nothing was thrown";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline void check_problems(const tilewright::Pack& pack)
{
    using tilewright::gemm::Problem;
    CHECK(error_of([] { Problem().layout("xyz"); }) == "unknown layout 'xyz'. Known: ccr, crr, rcr, rrr.");
    CHECK(has(error_of([] { Problem().dtype("half"); }), "unknown dtype 'half'. Known: bf16, bf8,"));
    const Problem mixed = Problem().dtype("fp8*bf8");
    CHECK(mixed.values().dtype_a == Problem().dtype("fp8").values().dtype_a);
    CHECK(mixed.values().dtype_b == Problem().dtype("bf8").values().dtype_b);
    const Problem square = Problem().m(256).n(256).k(256).dtype("fp16").layout("rcr");
    CHECK(has(error_of([&] { pack.plan(Problem(square).m(0)); }), "invalid gemm problem: m is 0, must be at least 1"));
    CHECK(has(error_of([&] { pack.best(Problem().m(1).n(1).k(1)); }), "has no dtype_a"));
    for(const tilewright::Kernel& kernel : pack)
        if(kernel.op() == "gemm" && kernel.field("dtype_a") != "fp16")
        {
            const auto reason = kernel.why_not(square);
            CHECK(reason && reason->code == "S501" && reason->rule == "other-problem" && !reason->advice.empty());
        }
        else if(kernel.op() != "gemm")
            CHECK(has(error_of([&] { kernel.why_not(square); }), "this is a problem of op 'gemm', the kernel is of op"));
    for(const tilewright::Choice& choice : pack.ranked(square))
        CHECK(choice.kernel.field("dtype_a") == "fp16" && choice.kernel.field("layout") == "rcr");
    const auto tensors = pack.tensors(Problem(square).n(64).stride_a(300));
    CHECK(tensors.size() == 3 && tensors[0].name == "a" && tensors[0].strides[0] == 300 && tensors[2].output);
    CHECK(tensors[0].bytes == 2 * (255 * 300 + 256) && tensors[1].bytes == 2 * 64 * 256);
    const auto conv = tilewright::grouped_conv::Problem()
                          .direction("forward").n(2).c(64).k(64).input_size({28, 28}).filter_size(3).pad(1).dtype("fp16");
    CHECK(pack.tensors(conv)[2].shape == (std::vector<std::int64_t>{2, 28, 28, 1, 64}));
    CHECK(has(error_of([] { tilewright::grouped_conv::Problem().pad({1, 1, 1, 1, 1}); }), "it takes 1 to 4"));
}

inline void check_plans(const tilewright::Pack& pack)
{
    const auto square = tilewright::gemm::Problem().m(256).n(256).k(256).dtype("fp16").layout("rcr");
    const auto plan   = pack.plan(square);
    CHECK(plan == pack.plan(tilewright::gemm::Problem(square).stride_a(256)) && plan->tensors().size() == 3);
    CHECK(plan != pack.plan(tilewright::gemm::Problem(square).m(512)));
    CHECK(has(error_of([&] { plan->run({nullptr}, nullptr); }), "the plan takes 3 tensors, got 1. It takes: a, b, c"));
    const auto best  = pack.best(square);
    const auto other = pack.plan(square, [&](const tilewright::Kernel& kernel) { return kernel != *best; });
    CHECK(best && plan->stages()[0].kernel == *best && other->stages()[0].kernel != *best);
    const std::string none = error_of([&] { pack.plan(tilewright::gemm::Problem(square).n(251).k(3)); });
    CHECK(has(none, "supports stage 1 of 1 of this gemm problem. The nearest:\n  gemm-gfx942-") && has(none, ": S5"));
    CHECK(has(plan->text(), "1. " + std::string(best->slug())));
    // The stand-ins end with an error without a stream.
    CHECK(has(error_of([&] { time(*plan, {nullptr, nullptr, nullptr}, nullptr, {0, 0, {}}); }), "runs is 0"));
    std::vector<std::thread> threads;
    for(int i = 0; i < 4; ++i)
        threads.emplace_back([&pack, i] {
            for(int m = 64; m < 2048; m += 64)
                CHECK(pack.plan(tilewright::gemm::Problem().m(m + i).n(256).k(256).dtype("fp16").layout("rcr")));
        });
    for(std::thread& thread : threads)
        thread.join();
}

inline void check_registries(const char* file)
{
    const auto square = tilewright::gemm::Problem().m(256).n(256).k(256).dtype("fp16").layout("rcr");
    tilewright::Registry registry(tilewright::Pack::open(file));
    const auto estimated = registry.ranked(square);
    CHECK(estimated.size() > 2 && *estimated[0].us <= *estimated[1].us);
    CHECK(registry.plan(square) == registry.plan(square));
    const std::string last(estimated.back().kernel.slug());
    registry.set_priority(2, [&](const tilewright::Kernel& kernel) { return kernel.slug() == last; });
    CHECK(registry.best(square)->slug() == last && registry.plan(square)->stages()[0].kernel.slug() == last);
    registry.set_strategy(tilewright::first_fit);
    const auto named = registry.ranked(square);
    CHECK(named[0].kernel.slug() == last && named[1].kernel.slug() < named[2].kernel.slug());
    registry.set_strategy([](std::vector<tilewright::Choice> choices) {
        std::reverse(choices.begin(), choices.end());
        return choices;
    });
    CHECK(registry.ranked(square)[1].kernel.slug() == estimated[estimated.size() - 2].kernel.slug());

    const auto half = registry.filter("gemm", {{"dtype_a", "fp16"}, {"layout", "rcr"}});
    CHECK(half.size() > 2 && half.size() < registry.size() && half.best(square)->slug() == last);
    CHECK(registry.for_gpu("gfx90a").size() == 0 && registry.for_gpu("gfx942").size() == registry.size());
    CHECK(has(error_of([&] { registry.for_gpu("gfx90a").best(square); }), "the registry has no kernel of op 'gemm'"));
    tilewright::Registry both;
    both.merge(half).merge(registry);
    CHECK(both.size() == registry.size() && both.best(square)->slug() == last);
    both.add(tilewright::Pack::open(file), 5); // the same kernels again, of a higher priority
    CHECK(both.size() == registry.size() && both.entries().front().priority == 5);
    CHECK(both.best(square)->slug() == estimated[0].kernel.slug());
    CHECK(both.find(last) && !both.find("gemm-none"));
    std::cout << both.to_json();
    const auto plan = both.plan(square);
    both            = tilewright::Registry();
    CHECK(plan->stages()[0].kernel.slug() == estimated[0].kernel.slug()); // the plan keeps the library
}

inline int check_api(const char* file)
{
    const auto pack = tilewright::Pack::open(file);
    check_problems(pack);
    check_plans(pack);
    check_registries(file);
    return 0;
}
