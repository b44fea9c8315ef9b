// Below problems: fill in the arguments of a kernel yourself, as a C program does.
//
// Arguments have sizes, strides and addresses, but neither types nor layouts: choose by the fields of kernels.
#include "reference.hpp"

int main(int, char** words)
{
    const auto pack    = tilewright::Pack::open(words[1], "gfx942");
    const auto problem = tilewright::gemm::Problem().m(64).n(64).k(64).dtype("fp16").layout("rcr");
    example::Tensors tensors(pack.tensors(problem)); // here only for memory and values

    auto args     = tilewright::make_args<tw_gemm_args>(); // all zero, but args.size
    args.a        = tensors.addresses()[0];
    args.b        = tensors.addresses()[1];
    args.c        = const_cast<void*>(tensors.addresses()[2]);
    args.m = args.n = args.k = 64;
    args.stride_a = args.stride_b = args.stride_c = 64;
    args.k_batch = args.batch = 1;
    const auto kernel = pack.best(args, [](const tilewright::Kernel& each) {
        return each.field("dtype_a") == "fp16" && each.field("layout") == "rcr" && each.field("variant") == "standard";
    });
    if(!kernel || kernel->workspace_size(args) != 0)
        return 1;
    std::cout << kernel->slug() << '\n';
    tensors.upload();
    kernel->run(args, nullptr);
    tensors.download();

    args.n = 63; // not supported by every kernel; the kernel gives the reason
    if(!kernel->supports(args))
        std::cout << "n = 63: " << kernel->message() << '\n';
    return example::compare(tensors["c"], example::multiply(tensors["a"], tensors["b"], tensors.zeros_like("c")), 0);
}
