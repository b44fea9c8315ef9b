// The launcher of a kind that a test adds: CK Tile's sum of products, with the output as both factors.
#ifndef TILEWRIGHT_FMHA_DOT_O_O_HPP
#define TILEWRIGHT_FMHA_DOT_O_O_HPP

#include "tilewright_fmha_dot_do_o.hpp"

namespace tilewright_fmha {

template <typename D>
struct DotOO
{
    using Products = DotDoO<D>;

    // The struct for the products: the output stands for its gradient, too.
    template <typename Function, typename... More>
    static int with_both(Function function, const tw_fmha_args* args, More... more)
    {
        if(args == nullptr || args->size < sizeof(tw_fmha_args))
            return function(args, more...);
        tw_fmha_args both = *args;
        both.d_o          = args->o;
        return function(&both, more...);
    }

    static int supports(const tw_fmha_args* args) { return with_both(Products::supports, args); }

    static int workspace_size(const tw_fmha_args* args, uint64_t* bytes)
    {
        return with_both(Products::workspace_size, args, bytes);
    }

    static int run(const tw_fmha_args* args, hipStream_t stream) { return with_both(Products::run, args, stream); }

    static void name_instances() { Products::name_instances(); }
};

} // namespace tilewright_fmha

#endif
