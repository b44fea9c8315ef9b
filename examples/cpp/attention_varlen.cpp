// Sequences of different lengths, packed one after the other without padding (group mode).
//
// `seqstart_q` and `seqstart_k` have the first token of each sequence, and the number of all tokens at the end.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").mode("group").dtype("fp16").batch(3).heads(2).hdim_q(64).mask("top_left")
                     .lse(true).seqlen_q(70).seqlen_k(70) // the longest
                     .total_q(108).total_k(108);          // all together
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    example::Tensors tensors(plan->tensors(), 0.25);
    tensors["seqstart_q"].values = tensors["seqstart_k"].values = {0, 5, 75, 108};
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    const std::vector<std::int64_t> starts = {0, 5, 75, 108};
    for(std::size_t sequence = 0; sequence < 3; ++sequence)
        for(std::int64_t h = 0; h < 2; ++h)
        {
            std::vector<const double*> keys, values;
            for(std::int64_t s = starts[sequence]; s < starts[sequence + 1]; ++s)
            {
                keys.push_back(k.row({s, h})), values.push_back(v.row({s, h}));
                example::attend(q.row({s, h}), keys, values, 64, expected.row({s, h}));
            }
        }
    return example::compare(tensors["o"], expected, 0.003);
}
