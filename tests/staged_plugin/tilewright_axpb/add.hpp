// y = the sum of all parts, and b, and with `onto` what y was; z = -y.
#ifndef TILEWRIGHT_AXPB_ADD_HPP
#define TILEWRIGHT_AXPB_ADD_HPP

namespace tilewright_axpb {

template <class D>
__global__ __launch_bounds__(D::threads) void add_kernel(tw_axpb_args args)
{
    const int64_t i = int64_t(blockIdx.x) * D::threads + threadIdx.x;
    if(i >= args.n - D::lazy)
        return;
    float sum = args.b[i] + (args.onto ? args.y[i] : 0.f);
    for(int64_t part = 0; part < D::count; ++part)
        sum += args.parts[part * args.n + i];
    args.y[i] = sum;
    if(args.z != nullptr)
        args.z[i] = -sum;
}

template <class D>
struct Add
{
    static int supports(const tw_axpb_args* args)
    {
        return args->count == D::count ? TW_OK
                                       : tilewright_call::fail(TW_UNSUPPORTED, "count is not %lld", D::count);
    }

    static int workspace_size(const tw_axpb_args* args, uint64_t* bytes)
    {
        *bytes = 0;
        return supports(args);
    }

    static int run(const tw_axpb_args* args, hipStream_t stream)
    {
        const int64_t blocks = (args->n + D::threads - 1) / D::threads;
        add_kernel<D><<<dim3(blocks), dim3(D::threads), 0, stream>>>(*args);
        return hipGetLastError() == hipSuccess ? TW_OK : tilewright_call::fail(TW_HIP_ERROR, "the launch failed");
    }

    static void name_instances() { static_cast<void>(&add_kernel<D>); }
};

} // namespace tilewright_axpb

#endif
