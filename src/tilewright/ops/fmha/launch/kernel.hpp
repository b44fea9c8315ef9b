// What the launchers of all attention families share: CK Tile's types for a kernel's Description, checks, the launch.
#ifndef TILEWRIGHT_FMHA_KERNEL_HPP
#define TILEWRIGHT_FMHA_KERNEL_HPP

#include "tilewright_call.hpp"
#include "tilewright_fmha.h"
#include "tilewright_fmha_mask.hpp"

#if defined(TILEWRIGHT_CK_BUFFER_RESOURCE_UNION)
namespace ck_tile {

// CK Tile fills a union in parts. Where a store is in a branch, the compiler does that byte by byte and keeps the union
// in memory, for which it takes 16 bytes of LDS from each thread. A struct stays in registers.
template <>
CK_TILE_DEVICE int32x4_t make_wave_buffer_resource<std::false_type>(const void* data, uint32_t size, std::false_type)
{
    struct Resource
    {
        const void* data;
        uint32_t size, config;
    };
    return bit_cast<int32x4_t>(Resource{data, size, CK_TILE_BUFFER_RESOURCE_3RD_DWORD});
}

} // namespace ck_tile
#endif

namespace tilewright_fmha {

using tilewright_call::fail;

enum class Pipeline
{
    qr,
    qr_async,
    qr_async_trload,
    qr_whole_k,
    qs,
    v3,
    qr_pagedkv,
    qr_nwarp_sshuffle,
    combine,
    appendkv,
    dot_do_o,
    kr_ktr_vr,
    kr_ktr_vr_iglp,
    trload_kr_ktr_vr,
    trload_qr_qtr_dor,
    convert_dq
};

// The parts of CK Tile's attention that a Description decides alone.
template <typename D>
struct Parts
{
    using Window = typename MaskOf<D::mask_form>::type;
    using Mask   = std::conditional_t<D::sink == 0, Window, SinkMask<Window, D::sink>>;
    using Variant =
        ck_tile::ComposedAttention<D::soft_cap * ck_tile::LOGITS_SOFT_CAP, CK_TILE_FMHA_FWD_FAST_EXP2>;
    // CK Tile's word for "as the pipeline thinks best".
    static constexpr int occupancy = D::blocks_per_cu == 0 ? -1 : D::blocks_per_cu;
};

// How the kernels of forward and batch_prefill quantise.
template <typename D>
struct Quantisation
{
#if defined(TILEWRIGHT_CK_FMHA_TRAITS_QUANT_SCALE)
    static_assert(!D::static_quant, "this CK Tile reads scales from the GPU's memory only");
    static constexpr auto value = ck_tile::BlockAttentionQuantScaleEnum::NO_SCALE;
#else
    static constexpr bool value = D::static_quant;
#endif
};

// For each of a kernel's arguments, its tuple and its element there.
template <std::size_t N>
struct ArgumentPlaces
{
    std::size_t tuple[N];
    std::size_t element[N];
};

template <std::size_t... Sizes>
constexpr auto find_argument_places()
{
    ArgumentPlaces<(Sizes + ...)> places{};
    constexpr std::size_t sizes[] = {Sizes...};
    std::size_t argument          = 0;
    for(std::size_t tuple = 0; tuple < sizeof...(Sizes); ++tuple)
        for(std::size_t element = 0; element < sizes[tuple]; ++element, ++argument)
        {
            places.tuple[argument]   = tuple;
            places.element[argument] = element;
        }
    return places;
}

template <typename Make, typename... Tuples, std::size_t... I>
auto pass_arguments(const Make& make, std::index_sequence<I...>, const Tuples&... tuples)
{
    constexpr auto places = find_argument_places<std::tuple_size_v<Tuples>...>();
    const auto all        = std::tie(tuples...);
    return make(std::get<places.element[I]>(std::get<places.tuple[I]>(all))...);
}

// Call a function with the elements of several tuples, one after another. std::tuple_cat and std::apply do the same,
// but a tuple of all arguments takes a third of the host pass.
template <typename Make, typename... Tuples>
auto call_with(const Make& make, const Tuples&... tuples)
{
    return pass_arguments(make, std::make_index_sequence<(std::tuple_size_v<Tuples> + ...)>{}, tuples...);
}

// A kernel's arguments from several tuples, one after another.
template <typename K, typename... Tuples>
auto make_arguments(const Tuples&... tuples)
{
    return call_with([](const auto&... values) { return K::MakeKargs(values...); }, tuples...);
}

// The window of a mask, as lists of arguments have it. Newer ones have CK Tile's own number of sinks, which is 0 here.
inline auto window_of(const tw_fmha_args& a)
{
#if defined(TILEWRIGHT_CK_FMHA_MASK_SINKS)
    return std::make_tuple(a.window_left, a.window_right, 0, a.mask);
#else
    return std::make_tuple(a.window_left, a.window_right, a.mask);
#endif
}

// The answer of the first check that refuses, or TW_OK. A check is a function of the struct.
template <typename... Checks>
int first_refusal(const tw_fmha_args* args, Checks... checks)
{
    int status = TW_OK;
    static_cast<void>((((status = checks(args)) != TW_OK) || ...));
    return status;
}

inline bool fits_int32(int64_t value) { return value >= 0 && value <= INT32_MAX; }

// What every family asks of the struct itself.
inline int check_struct(const tw_fmha_args* args)
{
    if(args == nullptr || args->size < sizeof(tw_fmha_args))
        return fail(TW_BAD_ARGS,
                    "the struct has %lld bytes, this library was built with %lld",
                    args == nullptr ? 0 : args->size,
                    sizeof(tw_fmha_args));
    const int64_t sizes[] = {args->batch, args->heads, args->kv_heads, args->seqlen_q, args->seqlen_k, args->hdim_q,
                             args->hdim_v};
    for(const int64_t size : sizes)
        if(size < 1 || !fits_int32(size))
            return fail(TW_BAD_ARGS, "a size is %lld, must be at least 1 and below 2^31", size);
    if(args->heads % args->kv_heads != 0)
        return fail(TW_BAD_ARGS, "%lld heads cannot share %lld key heads", args->heads, args->kv_heads);
    return TW_OK;
}

// CK Tile's kernels keep strides in 32 bits; `beyond` says whose stride does not fit, with one %lld.
inline int check_strides(const tw_fmha_tensor& tensor, const char* beyond)
{
    const int64_t strides[] = {tensor.part, tensor.batch, tensor.head, tensor.row};
    for(const int64_t stride : strides)
        if(!fits_int32(stride))
            return fail(TW_UNSUPPORTED, beyond, stride);
    return TW_OK;
}

inline int check_strides_q_k_v(const tw_fmha_args* args)
{
    int status = check_strides(args->q, "a stride of q is %lld, must be below 2^31");
    if(status == TW_OK)
        status = check_strides(args->k, "a stride of k is %lld, must be below 2^31");
    if(status == TW_OK)
        status = check_strides(args->v, "a stride of v is %lld, must be below 2^31");
    return status;
}

template <typename D>
int check_mode(const tw_fmha_args* args)
{
    if((args->group_mode != 0) != D::group_mode)
        return fail(TW_UNSUPPORTED,
                    "this kernel is for group mode = %lld, the problem has group mode = %lld",
                    D::group_mode,
                    args->group_mode);
    return TW_OK;
}

// One head size against the kernel's: equal without padding, else no larger and a multiple of the padding.
// The texts have %lld for the problem's number and for the kernel's.
inline int check_hdim(int64_t hdim, int64_t tile, int64_t pad, const char* unequal, const char* above, const char* odd)
{
    if(pad == 0)
        return hdim == tile ? TW_OK : fail(TW_UNSUPPORTED, unequal, hdim, tile);
    if(hdim > tile)
        return fail(TW_UNSUPPORTED, above, hdim, tile);
    return hdim % pad == 0 ? TW_OK : fail(TW_UNSUPPORTED, odd, hdim, pad);
}

template <typename D>
int check_hdim_q(const tw_fmha_args* args)
{
    return check_hdim(args->hdim_q,
                      D::hdim_q,
                      D::pad_hdim_q,
                      "hdim_q is %lld, without padding it must be the kernel's %lld",
                      "hdim_q is %lld, above the kernel's %lld",
                      "hdim_q is %lld, no multiple of %lld");
}

// `tile` is what the family calls its tile of a value's head.
template <typename D, int Tile>
int check_hdim_v(const tw_fmha_args* args)
{
    return check_hdim(args->hdim_v,
                      Tile,
                      D::pad_hdim_v,
                      "hdim_v is %lld, without padding it must be the kernel's %lld",
                      "hdim_v is %lld, above the kernel's %lld",
                      "hdim_v is %lld, no multiple of %lld");
}

// In group mode the lengths are in the GPU's memory; kernels for it are padded.
template <typename D>
int check_seqlen_q(const tw_fmha_args* args)
{
    if(!D::pad_q && !D::group_mode && args->seqlen_q % D::m0 != 0)
        return fail(TW_UNSUPPORTED,
                    "seqlen_q is %lld, without padding it must be a multiple of m0 = %lld",
                    args->seqlen_q,
                    D::m0);
    return TW_OK;
}

template <typename D>
int check_seqlen_k(const tw_fmha_args* args)
{
    if(!D::pad_k && !D::group_mode && args->seqlen_k % D::n0 != 0)
        return fail(TW_UNSUPPORTED,
                    "seqlen_k is %lld, without padding it must be a multiple of n0 = %lld",
                    args->seqlen_k,
                    D::n0);
    return TW_OK;
}

template <typename D>
int check_mask(const tw_fmha_args* args)
{
    if(args->mask < TW_FMHA_NO_MASK || args->mask > TW_FMHA_BOTTOM_RIGHT)
        return fail(TW_BAD_ARGS, "the mask is %lld, must be 0, 1 or 2", args->mask);
    if((args->mask != TW_FMHA_NO_MASK) != (D::mask_form != MaskForm::none))
        return fail(TW_UNSUPPORTED,
                    "the problem has mask %lld, this kernel has mask form %lld",
                    args->mask,
                    static_cast<int>(D::mask_form));
    if(args->window_left > INT32_MAX / 4 || args->window_right > INT32_MAX / 4)
        return fail(TW_UNSUPPORTED,
                    "the window is %lld to the left, %lld to the right; below 0 is no limit, at most 2^29",
                    args->window_left,
                    args->window_right);
    if(D::mask_form == MaskForm::causal && args->window_left >= 0)
        return fail(
            TW_UNSUPPORTED, "the window has %lld keys to the left, this kernel knows no left end", args->window_left);
    if(args->sink != D::sink)
        return fail(TW_UNSUPPORTED, "the problem has %lld sinks, this kernel has %lld", args->sink, D::sink);
    return TW_OK;
}

template <typename D>
int check_bias(const tw_fmha_args* args)
{
    constexpr int kind = static_cast<int>(D::bias);
    if(args->bias_kind != kind)
        return fail(TW_UNSUPPORTED, "the problem has bias kind %lld, this kernel has %lld", args->bias_kind, kind);
    if constexpr(D::bias == ck_tile::BlockAttentionBiasEnum::NO_BIAS)
        return TW_OK;
    if constexpr(D::bias == ck_tile::BlockAttentionBiasEnum::ALIBI)
        if(args->bias.head != 1)
            return fail(TW_UNSUPPORTED, "the heads' slopes are %lld apart, must be 1", args->bias.head);
    return check_strides(args->bias, "a stride of bias is %lld, must be below 2^31");
}

// LSE is stored by kernels made for it, and by these always.
template <typename D>
int check_lse(const tw_fmha_args* args)
{
    if((args->wants_lse != 0) != D::lse)
        return fail(
            TW_UNSUPPORTED, "the problem has lse = %lld, this kernel has lse = %lld", args->wants_lse, D::lse);
    return D::lse ? check_strides(args->lse, "a stride of lse is %lld, must be below 2^31") : TW_OK;
}

// A cap of 0 makes all scores 0 in a kernel with a cap.
template <typename D>
int check_soft_cap(const tw_fmha_args* args)
{
    if((args->logits_cap > 0) != D::soft_cap)
        return fail(TW_UNSUPPORTED,
                    "the problem has a cap of scores = %lld, this kernel has one = %lld",
                    args->logits_cap > 0,
                    D::soft_cap);
    return TW_OK;
}

// A kernel with dropout computes p_drop = 0, too.
template <typename D>
int check_dropout(const tw_fmha_args* args)
{
    if(!(args->p_drop >= 0) || args->p_drop >= 1)
        return fail(TW_BAD_ARGS, "p_drop is %lld millionths, must be 0 or more and below 1", args->p_drop * 1e6);
    if(!D::dropout && args->p_drop > 0)
        return fail(TW_UNSUPPORTED, "p_drop is %lld millionths, this kernel has no dropout", args->p_drop * 1e6);
    if(args->wants_randval == 0)
        return TW_OK;
    if(!D::dropout)
        return fail(TW_UNSUPPORTED, "random numbers are wanted, this kernel has no dropout");
    return check_strides(args->randval, "a stride of randval is %lld, must be below 2^31");
}

template <typename D>
int check_static_quant(const tw_fmha_args* args)
{
    if((args->static_quant != 0) != D::static_quant)
        return fail(TW_UNSUPPORTED,
                    "the problem has static_quant = %lld, this kernel has %lld",
                    args->static_quant,
                    D::static_quant);
    return TW_OK;
}

template <typename D>
int check_pages(const tw_fmha_args* args)
{
    if((args->page_size != 0) != D::paged)
        return fail(
            TW_UNSUPPORTED, "pages have %lld tokens, this kernel has pages = %lld", args->page_size, D::paged);
    return TW_OK;
}

template <typename D>
int check_min_seqlen_q(const tw_fmha_args* args)
{
    if(args->min_seqlen_q != 0 && !D::skip_min_seqlen_q)
        return fail(TW_UNSUPPORTED, "min_seqlen_q is %lld, this kernel leaves out no sequence", args->min_seqlen_q);
    return TW_OK;
}

// What `run` asks besides: `supports` is asked of problems that have no addresses yet. `missing` says what is null.
inline int need(const void* data, const char* missing)
{
    return data == nullptr ? fail(TW_BAD_ARGS, missing) : TW_OK;
}

inline int need_q_k_v(const tw_fmha_args* args)
{
    if(args->q.data == nullptr || args->k.data == nullptr || args->v.data == nullptr)
        return fail(TW_BAD_ARGS, "q, k and v must not be null");
    return TW_OK;
}

inline int need_o(const tw_fmha_args* args) { return need(args->o.data, "o must not be null"); }

template <typename D>
int need_starts(const tw_fmha_args* args)
{
    if(D::group_mode && (args->seqstart_q == nullptr || args->seqstart_k == nullptr))
        return fail(TW_BAD_ARGS, "seqstart_q and seqstart_k must not be null in group mode");
    return TW_OK;
}

template <typename D>
int need_bias(const tw_fmha_args* args)
{
    constexpr bool none = D::bias == ck_tile::BlockAttentionBiasEnum::NO_BIAS;
    return none ? TW_OK : need(args->bias.data, "bias must not be null");
}

template <typename D>
int need_lse(const tw_fmha_args* args)
{
    return D::lse ? need(args->lse.data, "lse must not be null") : TW_OK;
}

// Seed and offset are both numbers, or both in the GPU's memory.
inline int need_randval(const tw_fmha_args* args)
{
    if((args->drop_seed_at == nullptr) != (args->drop_offset_at == nullptr))
        return fail(TW_BAD_ARGS, "one of drop_seed_at and drop_offset_at is null: give both or none");
    return args->wants_randval != 0 ? need(args->randval.data, "randval must not be null") : TW_OK;
}

template <typename K, int Occupancy, typename Arguments>
int launch(dim3 grid, Arguments arguments, hipStream_t stream)
{
    const ck_tile::stream_config config{stream};
    ck_tile::make_kernel<Occupancy>(K{}, grid, K::BlockSize(), 0, arguments)(config);
    if(const auto error = hipGetLastError(); error != hipSuccess)
        return fail(TW_HIP_ERROR, "the launch failed with HIP error %lld", error);
    return TW_OK;
}

} // namespace tilewright_fmha

#endif
