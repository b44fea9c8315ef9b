// A causal mask: a query sees the keys up to its own position. The kernel skips blocks of keys that nobody sees.
//
// `lse` asks for the logarithm of the sum of exponentials of each query, which the gradients need.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("fp16").heads(2).seqlen_q(70).hdim_q(32).mask("top_left").lse(true);
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 0.5);
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"];
    example::Array expected = tensors.zeros_like("o"), lse = tensors.zeros_like("lse");
    for(std::int64_t h = 0; h < 2; ++h)
    {
        std::vector<const double*> keys, values;
        for(std::int64_t s = 0; s < 70; ++s) // one more key for each query
        {
            keys.push_back(k.row({0, s, h})), values.push_back(v.row({0, s, h}));
            example::attend(q.row({0, s, h}), keys, values, 32, expected.row({0, s, h}));
            double sum = 0;
            for(const double* key : keys)
                sum += std::exp(std::inner_product(key, key + 32, q.row({0, s, h}), 0.0) / std::sqrt(32.0));
            lse.at({0, h, s}) = std::log(sum);
        }
    }
    return example::compare(tensors["o"], expected, 0.003) + example::compare(tensors["lse"], lse, 0.001);
}
