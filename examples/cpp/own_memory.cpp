// Give a plan the memory between its kernels yourself, from your own allocator.
//
// Without `memory`, a plan allocates it once for each thread and stream, and keeps it.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("fp16").heads(2).seqlen_q(4).seqlen_k(96).hdim_q(64).num_splits(2)
                     .mask("bottom_right");
    const auto plan = pack.plan(problem);
    std::cout << plan->text() << plan->memory_size() << " bytes are needed\n";

    tilewright::RunOptions options;
    example::check(hipMalloc(&options.memory, plan->memory_size()));
    hipStream_t stream;
    example::check(hipStreamCreate(&stream));
    example::Tensors tensors(plan->tensors(), 0.25);
    tensors["seqlens_k"].values = {96};
    tensors.upload();
    plan->run(tensors.addresses(), stream, options);
    example::check(hipStreamSynchronize(stream));
    tensors.download();
    example::check(hipStreamDestroy(stream));
    example::check(hipFree(options.memory));

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    for(std::int64_t h = 0; h < 2; ++h)
        for(std::int64_t s = 0; s < 4; ++s)
        {
            std::vector<const double*> keys, values;
            for(std::int64_t t = 0; t <= 92 + s; ++t) // the last query sees all keys
                keys.push_back(k.row({0, t, h})), values.push_back(v.row({0, t, h}));
            example::attend(q.row({0, s, h}), keys, values, 64, expected.row({0, s, h}));
        }
    return example::compare(tensors["o"], expected, 0.002);
}
