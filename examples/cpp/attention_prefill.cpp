// Compute prompts over a cache that lists single tokens, as SGLang and FlashInfer keep it.
//
// `page_starts` has the first entry of each sequence in `page_list`. The last queries see all keys ("bottom_right").
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::fmha::Problem()
                     .family("batch_prefill").mode("group").dtype("fp16").batch(2).heads(4).kv_heads(2).hdim_q(64)
                     .seqlen_q(40).seqlen_k(40).total_q(49).total_k(70).page_size(1).pages(100)
                     .mask("bottom_right");
    const auto plan = pack.plan(problem);
    std::cout << plan->text();
    const std::int64_t first[] = {0, 9, 49}, listed[] = {0, 30, 70}; // 9 new tokens of 30, and 40 of 40
    example::Tensors tensors(plan->tensors(), 0.25);
    tensors["seqstart_q"].values  = {0, 9, 49};
    tensors["page_starts"].values = {0, 30, 70};
    for(std::size_t i = 0; i < 70; ++i)
        tensors["page_list"].values[i] = static_cast<double>(37 * i % 100); // in any order
    tensors.run(*plan);

    example::Array &q = tensors["q"], &k = tensors["k"], &v = tensors["v"], expected = tensors.zeros_like("o");
    for(int sequence = 0; sequence < 2; ++sequence)
        for(std::int64_t h = 0; h < 4; ++h)
            for(std::int64_t s = first[sequence]; s < first[sequence + 1]; ++s)
            {
                // The last query sees all keys of its sequence, each one before it one less.
                const std::int64_t hidden = first[sequence + 1] - 1 - s;
                std::vector<const double*> keys, values;
                for(std::int64_t t = listed[sequence]; t < listed[sequence + 1] - hidden; ++t)
                {
                    const std::int64_t page = 37 * t % 100;
                    keys.push_back(k.row({page, 0, h / 2})), values.push_back(v.row({page, 0, h / 2}));
                }
                example::attend(q.row({s, h}), keys, values, 64, expected.row({s, h}));
            }
    return example::compare(tensors["o"], expected, 0.003);
}
