// parts = factor · x in the first part, zeros in the others.
#ifndef TILEWRIGHT_AXPB_SCALE_HPP
#define TILEWRIGHT_AXPB_SCALE_HPP

namespace tilewright_axpb {

template <class D>
__global__ __launch_bounds__(D::threads) void scale_kernel(tw_axpb_args args)
{
    const int64_t i = int64_t(blockIdx.x) * D::threads + threadIdx.x;
    if(i >= args.n - D::lazy)
        return;
    for(int64_t part = 0; part < args.count; ++part)
        args.parts[part * args.n + i] = part == 0 ? float(args.factor) * args.x[i] : 0.f;
}

template <class D>
struct Scale
{
    static int supports(const tw_axpb_args* args)
    {
        return args->count >= D::count ? TW_OK
                                       : tilewright_call::fail(TW_UNSUPPORTED, "count is below %lld", D::count);
    }

    static int workspace_size(const tw_axpb_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    static int run(const tw_axpb_args* args, hipStream_t stream)
    {
        const int64_t blocks = (args->n + D::threads - 1) / D::threads;
        scale_kernel<D><<<dim3(blocks), dim3(D::threads), 0, stream>>>(*args);
        return hipGetLastError() == hipSuccess ? TW_OK : tilewright_call::fail(TW_HIP_ERROR, "the launch failed");
    }

    static void name_instances() { static_cast<void>(&scale_kernel<D>); }
};

} // namespace tilewright_axpb

#endif
