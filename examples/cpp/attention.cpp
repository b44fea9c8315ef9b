// Attention: softmax(Q * K / sqrt(hdim)) * V for every head.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("bf16").batch(2).heads(3).seqlen_q(20).seqlen_k(50).hdim_q(32);
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 0.5);
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    for(std::int64_t b = 0; b < 2; ++b)
        for(std::int64_t h = 0; h < 3; ++h)
        {
            std::vector<const double*> keys, values; // tensors are (batch, sequence, heads, elements of a head)
            for(std::int64_t t = 0; t < 50; ++t)
                keys.push_back(k.row({b, t, h})), values.push_back(v.row({b, t, h}));
            for(std::int64_t s = 0; s < 20; ++s)
                example::attend(q.row({b, s, h}), keys, values, 32, expected.row({b, s, h}));
        }
    return example::compare(tensors["o"], expected, 0.02); // probabilities and results are rounded to bf16
}
