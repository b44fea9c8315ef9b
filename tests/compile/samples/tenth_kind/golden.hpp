// fmha-gfx942-dot_o_o-batch-fp16-dot_do_o-b64x64-padq-padhv8-c49871de901e
// Rendered by Tilewright from a kernel declaration; a change here is lost at the next rendering.
#pragma once

#include "tilewright_fmha_settings.hpp"
#include "tilewright_ck_shortcuts.hpp"
#include "ck_tile/core.hpp"
#include "ck_tile/host/kernel_launch.hpp"
#include "ck_tile/ops/fmha.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"
#include "tilewright_fmha_kernel.hpp"
#include "tilewright_fmha_gradients.hpp"
#include "tilewright_fmha_dot_do_o.hpp"
#include "tilewright_fmha_dot_o_o.hpp"

namespace tw_fmha_c49871de901e {

struct Description
{
    static constexpr const char* name = "fmha-gfx942-dot_o_o-batch-fp16-dot_do_o-b64x64-padq-padhv8-c49871de901e";

    using QKV  = ck_tile::fp16_t;
    using P    = ck_tile::fp16_t;
    using O    = ck_tile::fp16_t;
    using Bias = ck_tile::fp16_t;

    static constexpr int threads = 64;
    static constexpr int hdim_v = 64;

    static constexpr tilewright_fmha::Pipeline pipeline = tilewright_fmha::Pipeline::dot_do_o;
    static constexpr tilewright_fmha::MaskForm mask_form = tilewright_fmha::MaskForm::none;
    static constexpr auto bias   = ck_tile::BlockAttentionBiasEnum::NO_BIAS;
    static constexpr auto rotary = ck_tile::RotaryEmbeddingEnum::NONE;
    static constexpr int pad_hdim_q = 0;
    static constexpr int pad_hdim_v = 8;
    static constexpr int sink = 0;
    static constexpr int log_max_splits = 0;
    static constexpr int max_seqlen_q = 0;
    static constexpr int blocks_per_cu = 0;
    static constexpr bool group_mode = false;
    static constexpr bool v_row_major = true;
    static constexpr bool pad_q = true;
    static constexpr bool pad_k = false;
    static constexpr bool lse = false;
    static constexpr bool soft_cap = false;
    static constexpr bool dropout = false;
    static constexpr bool store_randval = false;
    static constexpr bool static_quant = false;
    static constexpr bool paged = false;
    static constexpr bool uneven_splits = false;
    static constexpr bool merge_heads = false;
    static constexpr bool bias_gradient = false;
    static constexpr bool deterministic = false;
    static constexpr bool skip_min_seqlen_q = false;
};

} // namespace tw_fmha_c49871de901e

TILEWRIGHT_EXPORT(tw_fmha_c49871de901e, tilewright_fmha::DotOO, tw_fmha_args)
