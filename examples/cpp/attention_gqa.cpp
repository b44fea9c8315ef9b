// Several heads of queries share a head of keys and values (grouped-query attention).
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("fp16").heads(6).kv_heads(2).seqlen_q(16).seqlen_k(40).hdim_q(32)
                     .lse(true);
    const auto plan = pack.plan(problem);
    std::cout << "q has " << plan->tensors()[0].shape[2] << " heads, k and v have " << plan->tensors()[1].shape[2]
              << '\n';
    example::Tensors tensors(plan->tensors(), 0.5);
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    for(std::int64_t h = 0; h < 6; ++h)
    {
        std::vector<const double*> keys, values;
        for(std::int64_t t = 0; t < 40; ++t) // heads 0 to 2 share the first, heads 3 to 5 the second
            keys.push_back(k.row({0, t, h / 3})), values.push_back(v.row({0, t, h / 3}));
        for(std::int64_t s = 0; s < 16; ++s)
            example::attend(q.row({0, s, h}), keys, values, 32, expected.row({0, s, h}));
    }
    return example::compare(tensors["o"], expected, 0.003);
}
