// Decode one token for each sequence, with keys and values in pages.
//
// `page_table` lists the pages of each sequence in order, `seqlens_k` has the lengths. One query gives little work, so
// the keys are split among blocks: a second kernel combines the parts. Both are stages of one plan.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("forward").dtype("fp16").batch(3).heads(4).kv_heads(2).seqlen_q(1).seqlen_k(192)
                     .hdim_q(64).page_size(64).pages(7).num_splits(2);
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    const std::vector<double> lengths = {130, 64, 17}, table = {5, 0, 3, 2, 6, 6, 4, 1, 1};
    example::Tensors tensors(plan->tensors(), 0.25);
    tensors["seqlens_k"].values  = lengths;
    tensors["page_table"].values = table; // three for each sequence; those that are not needed may name any page
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    for(std::int64_t b = 0; b < 3; ++b)
        for(std::int64_t h = 0; h < 4; ++h)
        {
            std::vector<const double*> keys, values;
            for(std::int64_t t = 0; t < static_cast<std::int64_t>(lengths[static_cast<std::size_t>(b)]); ++t)
            {
                const auto page = static_cast<std::int64_t>(table[static_cast<std::size_t>(3 * b + t / 64)]);
                keys.push_back(k.row({page, t % 64, h / 2})), values.push_back(v.row({page, t % 64, h / 2}));
            }
            example::attend(q.row({b, 0, h}), keys, values, 64, expected.row({b, 0, h}));
        }
    return example::compare(tensors["o"], expected, 0.003);
}
