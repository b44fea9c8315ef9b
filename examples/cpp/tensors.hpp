// The tensors of a plan: values on the host, memory on the device. Shared by the examples.
#pragma once

#include <hip/hip_runtime_api.h>
#include <tilewright/fmha.hpp>
#include <tilewright/gemm.hpp>
#include <tilewright/grouped_conv.hpp>
#include <tilewright/verify.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace example {

inline void check(hipError_t status)
{
    if(status != hipSuccess)
        throw tilewright::Error(std::string("HIP: ") + hipGetErrorString(status));
}

// A type of floating-point numbers: bytes, bits of the fraction, bias of the exponent. A whole number has no fraction.
struct Format
{
    const char* name;
    int bytes, fraction, bias;
};

// gfx942 has fp8 and bf8 of the kind "fnuz": the bias is one higher than in the standard of the OCP.
inline const Format& format_of(const std::string& dtype)
{
    static const Format formats[] = {{"fp32", 4, 23, 127}, {"fp16", 2, 10, 15}, {"bf16", 2, 7, 127}, {"fp8", 1, 3, 8},
                                     {"bf8", 1, 2, 16},    {"int8", 1, 0, 0},   {"int32", 4, 0, 0}};
    for(const Format& format : formats)
        if(dtype == format.name)
            return format;
    throw tilewright::Error("the examples have no type " + dtype);
}

// The bits of the nearest number of a format. Numbers above its range are not handled.
inline std::uint32_t encode(double value, const Format& format)
{
    if(format.fraction == 0)
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    if(value == 0)
        return 0;
    const int exponent     = std::max(std::ilogb(value), 1 - format.bias);
    const double scaled    = std::ldexp(std::fabs(value), format.fraction - exponent);
    const auto significand = static_cast<std::uint32_t>(std::nearbyint(scaled));
    const auto sign        = static_cast<std::uint32_t>(value < 0) << (8 * format.bytes - 1);
    return sign | ((static_cast<std::uint32_t>(exponent + format.bias - 1) << format.fraction) + significand);
}

inline double decode(std::uint32_t bits, const Format& format)
{
    if(format.fraction == 0)
        return format.bytes == 1 ? static_cast<std::int8_t>(bits) : static_cast<std::int32_t>(bits);
    const int size           = 8 * format.bytes - 1;
    const std::uint32_t rest = bits & ((1U << size) - 1), fraction = rest & ((1U << format.fraction) - 1);
    const int exponent       = static_cast<int>(rest >> format.fraction);
    if(exponent == (1 << (size - format.fraction)) - 1 && format.bytes > 1)
        return NAN; // or infinite: no result of the examples is
    const std::uint32_t first = exponent == 0 ? 0 : 1U << format.fraction; // the leading bit is not stored
    const double value = std::ldexp(first + fraction, std::max(exponent, 1) - format.bias - format.fraction);
    return bits >> size ? -value : value;
}

// Values of a tensor, one for each element from its first to its last in memory.
struct Array : tilewright::HostTensor
{
    explicit Array(const tilewright::Tensor& tensor)
        : HostTensor{tensor, {}}
    {
        values.resize(tensor.bytes / static_cast<std::uint64_t>(format_of(tensor.dtype).bytes));
    }
    // The elements of the last dimension: all but its index is given.
    double* row(const std::vector<std::int64_t>& index) { return &values.at(place(index)); }
    const double* row(const std::vector<std::int64_t>& index) const { return &values.at(place(index)); }
};

// All tensors of a plan. Inputs have whole multiples of `unit` from -2 to 2 units, so that sums can be exact.
class Tensors
{
    public:
    explicit Tensors(const std::vector<tilewright::Tensor>& listed, double unit = 1)
    {
        std::uint32_t state = 1;
        for(const tilewright::Tensor& tensor : listed)
        {
            arrays_.emplace_back(tensor);
            for(double& value : arrays_.back().values)
            {
                state = 1664525 * state + 1013904223;
                value = tensor.output ? 0 : unit * (static_cast<int>(state >> 16) % 5 - 2);
            }
            void* address = nullptr;
            check(hipMalloc(&address, tensor.bytes));
            check(hipMemset(address, 0xff, tensor.bytes)); // not a number: an element that no kernel writes is found
            addresses_.push_back(address);
        }
    }
    Tensors(const Tensors&)            = delete;
    Tensors& operator=(const Tensors&) = delete;
    ~Tensors()
    {
        for(const void* address : addresses_)
            static_cast<void>(hipFree(const_cast<void*>(address)));
    }

    Array& operator[](const std::string& name)
    {
        for(Array& array : arrays_)
            if(array.about.name == name)
                return array;
        throw tilewright::Error("the plan has no tensor " + name);
    }
    // A tensor of zeros with the shape of another, for the expected values.
    Array zeros_like(const std::string& name) { return Array((*this)[name].about); }
    // What `Plan::run` takes.
    const std::vector<const void*>& addresses() const { return addresses_; }

    void upload()
    {
        for(std::size_t i = 0; i < arrays_.size(); ++i)
            if(!arrays_[i].about.output || arrays_[i].about.updated)
                copy(i, true);
    }
    void download()
    {
        check(hipDeviceSynchronize());
        for(std::size_t i = 0; i < arrays_.size(); ++i)
            if(arrays_[i].about.output)
                copy(i, false);
    }
    void run(tilewright::Plan& plan, const tilewright::RunOptions& options = {})
    {
        upload();
        plan.run(addresses(), nullptr, options);
        download();
    }

    private:
    void copy(std::size_t number, bool to_device)
    {
        Array& array         = arrays_[number];
        const Format& format = format_of(array.about.dtype);
        const auto size      = static_cast<std::size_t>(format.bytes);
        auto* address        = const_cast<void*>(addresses_[number]);
        std::vector<char> bytes(array.about.bytes);
        if(!to_device)
            check(hipMemcpy(bytes.data(), address, bytes.size(), hipMemcpyDeviceToHost));
        for(std::size_t i = 0; i < array.values.size(); ++i)
        {
            std::uint32_t bits = to_device ? encode(array.values[i], format) : 0;
            if(to_device)
                std::memcpy(&bytes[i * size], &bits, size);
            else
                std::memcpy(&bits, &bytes[i * size], size);
            array.values[i] = decode(bits, format); // also after an upload: the host has the device's numbers
        }
        if(to_device)
            check(hipMemcpy(address, bytes.data(), bytes.size(), hipMemcpyHostToDevice));
    }

    std::vector<Array> arrays_;
    std::vector<const void*> addresses_;
};

// Print the largest error, and return what `main` returns: 0 if no error is above the limit.
inline int compare(const Array& actual, const Array& expected, double limit)
{
    double largest = 0;
    int wrong      = 0;
    for(std::size_t i = 0; i < expected.values.size(); ++i)
    {
        const double error = std::fabs(actual.values.at(i) - expected.values[i]);
        largest            = std::fmax(largest, error);
        wrong += !(error <= limit); // also if it is not a number
    }
    std::printf("%s: %d of %zu elements are wrong; largest error %.4f, allowed %.4f\n", actual.about.name.c_str(), wrong,
                expected.values.size(), largest, limit);
    return wrong == 0 ? 0 : 1;
}

} // namespace example
