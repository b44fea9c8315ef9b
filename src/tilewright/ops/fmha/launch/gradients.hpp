// What the launchers of the families dot_do_o, dq_dk_dv and convert_dq share: checks.
#ifndef TILEWRIGHT_FMHA_GRADIENTS_HPP
#define TILEWRIGHT_FMHA_GRADIENTS_HPP

#include "tilewright_fmha_kernel.hpp"

namespace tilewright_fmha {

// In batch mode the kernels take all sequences to be full.
template <typename D>
int check_lengths(const tw_fmha_args* args)
{
    if(!D::group_mode && (args->seqlens_q != nullptr || args->seqlens_k != nullptr))
        return fail(TW_UNSUPPORTED,
                    "seqlens_q and seqlens_k are for group mode; the %lld sequences of a batch are full",
                    args->batch);
    return TW_OK;
}

// What a kernel sees of a tensor at once: one head of one sequence.
struct View
{
    const char* name;
    const tw_fmha_tensor& tensor;
    int64_t rows, columns;
    uint64_t element; // bytes
    int64_t parts = 1;
};

// CK Tile keeps strides in 32 bits, and so it does with the bytes from the first element of a view to another.
inline int check_views(std::initializer_list<View> views)
{
    char text[128];
    for(const auto& [name, tensor, rows, columns, element, parts] : views)
    {
        std::snprintf(text, sizeof(text), "a stride of %s is %%lld, must be below 2^31", name);
        if(const int status = check_strides(tensor, text); status != TW_OK)
            return status;
        const double last = static_cast<double>(parts - 1) * tensor.part + static_cast<double>(rows) * tensor.row;
        std::snprintf(text, sizeof(text), "one head of %s takes %%lld bytes, must be below 2^31", name);
        if((last + columns) * element > INT32_MAX)
            return fail(TW_UNSUPPORTED, text, static_cast<int64_t>((last + columns) * element));
    }
    return TW_OK;
}

} // namespace tilewright_fmha

#endif
