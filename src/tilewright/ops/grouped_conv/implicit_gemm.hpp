// How a convolution is handed to CK Tile's convolution kernels: as an implicit GEMM.
#ifndef TILEWRIGHT_GROUPED_CONV_IMPLICIT_HPP
#define TILEWRIGHT_GROUPED_CONV_IMPLICIT_HPP

#include <vector>

#include "tilewright_grouped_conv_args.hpp"

namespace tilewright_grouped_conv {

// A pipeline that finds out about its loop on the device: work-groups of one launch may have different numbers of steps.
template <typename Pipeline>
struct AnyLoop : Pipeline
{
    template <typename A, typename B>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, ck_tile::index_t steps, void* lds) const
    {
        const bool hot_loop = Pipeline::BlockHasHotloop(steps);
        const auto tail     = Pipeline::GetBlockLoopTailNum(steps);
        return Pipeline::operator()(a, b, steps, hot_loop, tail, lds);
    }
};

// A pipeline that takes its operands in tuples, as CK Tile's GEMM kernels hand them over.
template <typename Pipeline>
struct OfTuples : Pipeline
{
    template <typename A, typename B, typename... Lds>
    CK_TILE_DEVICE auto operator()(const A& a, const B& b, ck_tile::index_t steps, Lds*... lds) const
    {
        // comp_async takes no other functions of elements than this one, not even its own default.
        const ck_tile::element_wise::PassThrough as_it_is{};
        return Pipeline::operator()(ck_tile::make_tuple(a), as_it_is, ck_tile::make_tuple(b), as_it_is, steps, lds...);
    }
};

// An epilogue for pipelines of which only the first wave has the result. CK Tile's GEMM kernels know of it, its
// convolution kernels let every wave store.
template <typename Epilogue>
struct FirstWave : Epilogue
{
    template <typename Window, typename Tile, typename Tensors>
    CK_TILE_DEVICE void operator()(Window& window, const Tile& tile, const Tensors& tensors, void* lds) const
    {
        if(ck_tile::get_warp_id() == 0)
            Epilogue::template operator()<Window, Tile>(window, tile, tensors, lds);
    }
};

template <typename D>
struct ImplicitGemm
{
    static constexpr bool forward         = D::direction == Direction::forward;
    static constexpr bool backward_data   = D::direction == Direction::backward_data;
    static constexpr bool backward_weight = D::direction == Direction::backward_weight;
    // The work-groups of a gradient of the input have loops of their own, so that one instance does for all.
    static constexpr bool one_instance = backward_data;

    static int check(const tw_grouped_conv_args& args)
    {
        if(args.k_batch > 1 && !backward_weight)
            return fail(TW_UNSUPPORTED, "k_batch is %lld, but only sums of weight gradients are split", args.k_batch);
        if(args.g % D::merge_groups != 0)
            return fail(TW_UNSUPPORTED, "%lld groups are not a multiple of the %lld that this kernel merges", args.g,
                        D::merge_groups);
        if constexpr(D::split_image)
            return check_pieces(args);
        return TW_OK;
    }

    // Steps along K of every work-group.
    static int64_t steps(const tw_grouped_conv_args& args)
    {
        if constexpr(backward_weight)
        {
            const int64_t step = args.k_batch * D::block_k;
            return (args.n * outputs(args) + step - 1) / step;
        }
        else
        {
            const int64_t k = args.channels_in / args.g * product(args.filter_size, args.ndim);
            return (k + D::block_k - 1) / D::block_k;
        }
    }

    static auto parameters(const tw_grouped_conv_args& args)
    {
        // CK Tile's convolution may have a dimension more than the problem, of extent 1.
        using Extents      = std::vector<ck_tile::long_index_t>;
        const auto extents = [&](const int64_t(&values)[TW_GROUPED_CONV_MAX_NDIM], int64_t outermost = 1) {
            Extents all(D::ck_ndim - D::ndim, outermost);
            all.insert(all.end(), values, values + D::ndim);
            return all;
        };
        return ck_tile::conv::ConvParam{static_cast<ck_tile::long_index_t>(D::ck_ndim),
                                        static_cast<ck_tile::long_index_t>(args.g),
                                        static_cast<ck_tile::long_index_t>(args.n),
                                        static_cast<ck_tile::long_index_t>(args.channels_out / args.g),
                                        static_cast<ck_tile::long_index_t>(args.channels_in / args.g),
                                        extents(args.filter_size),
                                        extents(args.input_size),
                                        extents(args.stride),
                                        extents(args.dilation),
                                        extents(args.left_pad, 0),
                                        extents(args.right_pad, 0)};
    }

    // `result` is the result, or the workspace of a first stage.
    static auto host_args(const tw_grouped_conv_args& args, void* result)
    {
        const auto k_batch = static_cast<ck_tile::index_t>(args.k_batch);
        if constexpr(forward)
            return ck_tile::GroupedConvFwdHostArgs<>{parameters(args), args.a, args.b, {}, result, k_batch};
        else if constexpr(backward_data)
            return ck_tile::GroupedConvBwdDataHostArgs{parameters(args), result, args.b, {}, args.a, k_batch};
        else
            return ck_tile::GroupedConvBwdWeightHostArgs{parameters(args), args.b, result, {}, args.a, k_batch};
    }

    template <typename K, typename Arguments>
    static bool supported(const Arguments& arguments)
    {
        return K::IsSupportedArgument(arguments);
    }

    template <typename K, typename Arguments>
    static dim3 grid(const tw_grouped_conv_args& args, Arguments& arguments)
    {
        dim3 blocks = K::GridSize(arguments);
        if constexpr(D::split_image)
            blocks.x = split(args, arguments);
        return blocks;
    }

    // Pieces of the image along its outermost dimension, which are contiguous in every image.
    static int64_t pieces(const tw_grouped_conv_args& args) { return std::min<int64_t>(2, output_size(args, 0)); }

    // A work-group's tile continues from a piece into the next of the same image, not into the next image.
    static int check_pieces(const tw_grouped_conv_args& args)
    {
        const int64_t line  = outputs(args) / output_size(args, 0);
        const int64_t piece = output_size(args, 0) / pieces(args) * line;
        const int64_t last  = outputs(args) - piece * (pieces(args) - 1);
        if(args.n > 1 && (piece % D::block_m != 0 || last % D::block_m != 0))
            return fail(TW_UNSUPPORTED, "the pieces of an image have %lld and %lld outputs, with several images they "
                        "must be multiples of block m = %lld", piece, last, D::block_m);
        return TW_OK;
    }

    // Describes the pieces to the kernel; the number of work-groups of all of them.
    template <typename Arguments>
    static uint32_t split(const tw_grouped_conv_args& args, Arguments& arguments)
    {
        using Index       = ck_tile::index_t;
        const auto extent = [&](int i) -> Index { return i < 0 ? 1 : static_cast<Index>(output_size(args, i)); };
        const Index w = extent(D::ndim - 1), h = extent(D::ndim - 2), d = extent(D::ndim - 3);
        const Index count   = static_cast<Index>(pieces(args));
        const Index along_w = D::ndim == 1 ? count : 1, along_h = D::ndim == 2 ? count : 1;
        const Index along_d = D::ndim == 3 ? count : 1;
        auto& image         = arguments.split_image;
        image.total_w = w, image.total_h = h, image.total_d = d;
        image.total_spatial = d * h * w;
        image.num_d_pieces = along_d, image.num_h_pieces = along_h, image.num_w_pieces = along_w;
        arguments.num_spatial_pieces = count;
        Index blocks                 = 0;
        for(Index i = 0; i < count; ++i)
        {
            const auto piece = ck_tile::calculate_spatial_piece<typename D::Partitioner>(
                i, along_d, along_h, along_w, d / along_d, h / along_h, w / along_w, d, h, w, arguments.n_per_split,
                static_cast<Index>(args.channels_out / args.g), blocks);
            image.pieces[i] = {piece.block_start, piece.block_end, piece.d_start, piece.h_start,
                               piece.w_start,     piece.d_size,    piece.h_size,  piece.w_size};
            blocks = piece.block_end;
        }
        return static_cast<uint32_t>(blocks);
    }
};

} // namespace tilewright_grouped_conv

#endif
