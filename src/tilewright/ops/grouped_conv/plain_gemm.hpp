// How a convolution with 1x1 filters is handed to CK Tile's batched GEMM: a group is a matrix of the batch.
#ifndef TILEWRIGHT_GROUPED_CONV_PLAIN_HPP
#define TILEWRIGHT_GROUPED_CONV_PLAIN_HPP

#include "tilewright_ck_api.hpp"
#include "tilewright_grouped_conv_args.hpp"

namespace tilewright_grouped_conv {

template <typename D>
struct PlainGemm
{
    static constexpr bool one_instance = false;

    // The GEMM of one group, with the distances of its lines and of the groups.
    struct Gemm
    {
        int64_t m, n, k;
        int64_t stride_a, stride_b, stride_c;
        int64_t group_a, group_b, group_c;
    };

    static Gemm gemm_of(const tw_grouped_conv_args& args)
    {
        const int64_t pixels = args.n * outputs(args);
        const int64_t in = args.channels_in / args.g, out = args.channels_out / args.g;
        if constexpr(D::direction == Direction::forward)
            return {pixels, out, in, args.channels_in, in, args.channels_out, in, out * in, out};
        else if constexpr(D::direction == Direction::backward_data)
            return {pixels, in, out, args.channels_out, in, args.channels_in, out, out * in, in};
        else
            return {out, in, pixels, args.channels_out, args.channels_in, in, out, in, out * in};
    }

    static constexpr int64_t tile_k = D::Shape::WarpTile::at(ck_tile::number<2>{});

    // CK Tile's GEMM gives each part of a split whole matrix tiles.
    static int64_t part(const tw_grouped_conv_args& args)
    {
        const int64_t step = args.k_batch * tile_k;
        return (gemm_of(args).k + step - 1) / step * tile_k;
    }

    static int64_t steps(const tw_grouped_conv_args& args) { return (part(args) + D::block_k - 1) / D::block_k; }

    static int check(const tw_grouped_conv_args& args)
    {
        for(int i = 0; i < args.ndim; ++i)
            if(args.filter_size[i] != 1 || args.stride[i] != 1 || args.left_pad[i] != 0 || args.right_pad[i] != 0)
                return fail(TW_UNSUPPORTED, "this kernel computes 1x1 filters with stride 1 and no padding");
        if(args.k_batch > 1 && D::direction != Direction::backward_weight)
            return fail(TW_UNSUPPORTED, "k_batch is %lld, but only sums of weight gradients are split", args.k_batch);
#ifdef TILEWRIGHT_CK_GEMM_PIPELINE_PROBLEM_PER_LOOP
        // All parts run one compiled loop, so they must agree in its form.
        const int64_t k    = gemm_of(args).k;
        const int64_t last = k - part(args) * (args.k_batch - 1);
        if(last < 1 || (last + D::block_k - 1) / D::block_k != steps(args))
            return fail(TW_UNSUPPORTED, "a sum of %lld splits unevenly into %lld parts", k, args.k_batch);
#endif
        return TW_OK;
    }

    static auto host_args(const tw_grouped_conv_args& args, void* result)
    {
        const auto i    = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
        const Gemm gemm = gemm_of(args);
        return ck_tile::BatchedGemmHostArgs{args.a, args.b, result, i(args.k_batch), i(gemm.m), i(gemm.n), i(gemm.k),
                                            i(gemm.stride_a), i(gemm.stride_b), i(gemm.stride_c), i(gemm.group_a),
                                            i(gemm.group_b), i(gemm.group_c), i(args.g)};
    }

    // Not the batched kernel's own test: it wants the matrices of a batch one behind the other, and those of groups lie
    // side by side.
    template <typename K, typename Arguments>
    static bool supported(const Arguments& arguments)
    {
        return K::UniversalGemmKernel::IsSupportedArgument(arguments);
    }

    template <typename K, typename Arguments>
    static dim3 grid(const tw_grouped_conv_args& args, Arguments&)
    {
        const Gemm gemm = gemm_of(args);
        const auto i    = [](int64_t value) { return static_cast<ck_tile::index_t>(value); };
        return K::GridSize(i(gemm.m), i(gemm.n), i(args.k_batch), i(args.g));
    }
};

} // namespace tilewright_grouped_conv

#endif
