// The gradients of attention: three kernels in one plan.
//
// dot_do_o sums grad_o * o for each query, dq_dk_dv computes the gradients, convert_dq rounds the sums for dq.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem().family("backward").dtype("fp16").heads(2).seqlen_q(64).hdim_q(64);
    const auto plan    = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 0.25);
    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], &o = tensors["o"], &d_o = tensors["d_o"];
    example::Array dq = tensors.zeros_like("dq"), dk = tensors.zeros_like("dk"), dv = tensors.zeros_like("dv");
    std::fill(o.values.begin(), o.values.end(), 0);
    const double scale = 1 / std::sqrt(64.0);
    for(std::int64_t h = 0; h < 2; ++h)
    {
        std::vector<const double*> keys, values;
        for(std::int64_t t = 0; t < 64; ++t)
            keys.push_back(k.row({0, t, h})), values.push_back(v.row({0, t, h}));
        for(std::int64_t s = 0; s < 64; ++s)
        {
            const double *query = q.row({0, s, h}), *grad = d_o.row({0, s, h});
            const auto p = example::find_probabilities(query, keys, 64);
            example::attend(query, keys, values, 64, o.row({0, s, h})); // o and lse are results of the forward pass
            const double score            = std::inner_product(query, query + 64, keys[0], 0.0) * scale;
            tensors["lse"].at({0, h, s}) = score - std::log(p[0]);
            const double sum              = std::inner_product(grad, grad + 64, o.row({0, s, h}), 0.0);
            for(std::int64_t t = 0; t < 64; ++t)
            {
                const auto place = static_cast<std::size_t>(t);
                const double dp  = std::inner_product(grad, grad + 64, values[place], 0.0);
                const double ds  = p[place] * (dp - sum) * scale;
                for(std::int64_t i = 0; i < 64; ++i)
                {
                    dq.at({0, s, h, i}) += ds * keys[place][i];
                    dk.at({0, t, h, i}) += ds * query[i];
                    dv.at({0, t, h, i}) += p[place] * grad[i];
                }
            }
        }
    }
    tensors.run(*plan);
    return example::compare(tensors["dq"], dq, 0.003) + example::compare(tensors["dk"], dk, 0.003) +
           example::compare(tensors["dv"], dv, 0.003);
}
