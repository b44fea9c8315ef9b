// Append keys and values to a cache, rotated by their positions.
//
// Tensors that a kernel both reads and writes are outputs that are `updated`: q, k and v here.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("appendkv").dtype("fp16").batch(3).heads(4).kv_heads(2).seqlen_q(1).seqlen_k(128)
                     .hdim_q(64).seqlen_new(1).rotary("half").mask("bottom_right");
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 0.5);
    tensors["seqlens_k"].values = {70, 0, 5}; // tokens that are in the cache already
    example::Array &cosines = tensors["rotary_cos"], &sines = tensors["rotary_sin"];
    for(std::int64_t position = 0; position < 128; ++position)
        for(std::int64_t i = 0; i < 32; ++i)
        {
            const double angle       = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / 32);
            cosines.at({position, i}) = std::cos(angle);
            sines.at({position, i})   = std::sin(angle);
        }
    example::Array k = tensors["k"], v = tensors["v"]; // zeros: the cache before
    tensors.run(*plan);

    const std::int64_t lengths[] = {70, 0, 5};
    for(std::int64_t b = 0; b < 3; ++b)
        for(std::int64_t h = 0; h < 2; ++h)
        {
            const std::int64_t at = lengths[b];
            const double* old     = tensors["k_new"].row({b, 0, h});
            for(std::int64_t i = 0; i < 32; ++i) // element i is rotated together with element i + 32
            {
                const double c = cosines.at({at, i}), s = sines.at({at, i});
                k.at({b, at, h, i})      = old[i] * c - old[i + 32] * s;
                k.at({b, at, h, i + 32}) = old[i + 32] * c + old[i] * s;
            }
            std::copy_n(tensors["v_new"].row({b, 0, h}), 64, v.row({b, at, h}));
        }
    return example::compare(tensors["k"], k, 0.002) + example::compare(tensors["v"], v, 0);
}
