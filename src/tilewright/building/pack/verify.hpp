// Runs a plan with numbers of its own, and compares every element of its results with a reference on the host.
#ifndef TILEWRIGHT_VERIFY_HPP
#define TILEWRIGHT_VERIFY_HPP

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"

namespace tilewright {

// A tensor on the host: a number for each element from its first to its last in memory.
struct HostTensor
{
    Tensor about;
    std::vector<double> values;

    std::int64_t extent(std::size_t dimension) const { return about.shape.at(dimension); }
    std::size_t place(const std::vector<std::int64_t>& index) const
    {
        std::int64_t place = 0;
        for(std::size_t i = 0; i < index.size(); ++i)
            place += index[i] * about.strides.at(i);
        return static_cast<std::size_t>(place);
    }
    double& at(const std::vector<std::int64_t>& index) { return values.at(place(index)); }
    double at(const std::vector<std::int64_t>& index) const { return values.at(place(index)); }
};

// The tensor of that name; a problem without it throws.
inline HostTensor& find_tensor(std::vector<HostTensor>& tensors, std::string_view name)
{
    for(HostTensor& tensor : tensors)
        if(tensor.about.name == name)
            return tensor;
    throw Error("the problem has no tensor '" + std::string(name) + "'");
}

// Computes the outputs among `tensors` from the inputs. It need not round.
using HostReference = std::function<void(std::vector<HostTensor>& tensors)>;

struct VerifyOptions
{
    std::uint32_t seed = 1;
    // Roundings to the type of an output that a right result may have had: the allowed error is as many units in the
    // last place of the expected number. A sum that is split and added in that type has one more for each part.
    double roundings = 2;
    RunOptions run;
};

// The errors of one output.
struct CheckedOutput
{
    std::string name;
    std::size_t elements, wrong; // also wrong: an element that was not written, or is not a number
    double largest_error;        // infinite for such an element
    double largest_share;        // of the allowed error
};

struct Verification
{
    std::vector<CheckedOutput> outputs;

    bool passed() const
    {
        return std::all_of(outputs.begin(), outputs.end(), [](const CheckedOutput& each) { return each.wrong == 0; });
    }
    std::string text() const
    {
        std::string text;
        for(const CheckedOutput& each : outputs)
        {
            char line[96];
            std::snprintf(line, sizeof(line), "largest error %g, %g of the allowed one", each.largest_error,
                          each.largest_share);
            text += each.name + ": " + std::to_string(each.wrong) + " of " + std::to_string(each.elements) +
                    " elements are wrong; " + line + "\n";
        }
        return text;
    }
};

namespace detail {

// A type of numbers: bits, bits of the fraction, bias of the exponent. A whole number has no fraction.
struct NumberFormat
{
    int bits, fraction, bias;
};

// `fp8` is the kind of 8-bit floats that a GPU has, "ocp" or "fnuz".
inline NumberFormat find_format(const std::string& dtype, std::string_view fp8)
{
    const int more = fp8 == "fnuz" ? 1 : 0;
    const std::pair<const char*, NumberFormat> known[] = {
        {"fp32", {32, 23, 127}}, {"fp16", {16, 10, 15}}, {"bf16", {16, 7, 127}}, {"fp8", {8, 3, 7 + more}},
        {"bf8", {8, 2, 15 + more}}, {"int8", {8, 0, 0}}, {"int32", {32, 0, 0}}};
    for(const auto& [name, format] : known)
        if(dtype == name)
            return format;
    throw Error("there is no host reference for tensors of type " + dtype);
}

// The distance from a number to its neighbour in a format; 0 for whole numbers, which are not rounded.
inline double find_ulp(double value, const NumberFormat& format)
{
    if(format.fraction == 0)
        return 0;
    const int least = 1 - format.bias;
    return std::ldexp(1.0, (value == 0 ? least : std::max(std::ilogb(value), least)) - format.fraction);
}

// The bits of a number that the format represents.
inline std::uint32_t encode(double value, const NumberFormat& format)
{
    if(format.fraction == 0)
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    if(value == 0)
        return 0;
    const int exponent     = std::max(std::ilogb(value), 1 - format.bias);
    const auto significand = static_cast<std::uint32_t>(
        std::nearbyint(std::ldexp(std::fabs(value), format.fraction - exponent)));
    const auto sign = static_cast<std::uint32_t>(value < 0) << (format.bits - 1);
    return sign | ((static_cast<std::uint32_t>(exponent + format.bias - 1) << format.fraction) + significand);
}

inline double decode(std::uint32_t word, const NumberFormat& format, std::string_view fp8)
{
    if(format.fraction == 0)
        return format.bits == 8 ? static_cast<std::int8_t>(word) : static_cast<std::int32_t>(word);
    const int size             = format.bits - 1;
    const std::uint32_t rest   = word & ((1U << size) - 1), fraction = rest & ((1U << format.fraction) - 1);
    const auto exponent        = static_cast<int>(rest >> format.fraction);
    const int largest          = (1 << (size - format.fraction)) - 1;
    // Only the 8-bit floats of 4 exponent bits, and those with one NaN, use the largest exponent for numbers.
    const bool ieee    = format.bits > 8 || (format.fraction == 2 && fp8 != "fnuz");
    const bool only_nan = format.bits == 8 && (fp8 == "fnuz" ? word == 0x80 : rest == 0x7f);
    if(only_nan || (ieee && exponent == largest))
        return std::numeric_limits<double>::quiet_NaN(); // or infinite: no right result is
    const std::uint32_t first = exponent == 0 ? 0 : 1U << format.fraction; // the leading bit is not stored
    const double value = std::ldexp(first + fraction, std::max(exponent, 1) - format.bias - format.fraction);
    return word >> size ? -value : value;
}

// Memory on the device with the elements of a tensor.
class DeviceTensor
{
    public:
    DeviceTensor(const tw_pack_device& device, const HostTensor& tensor, std::string_view fp8)
        : device_(device), format_(find_format(tensor.about.dtype, fp8)), fp8_(fp8), bytes_(tensor.about.bytes)
    {
        require(device.allocate(&address_, bytes_), "allocate");
        std::vector<char> bytes(bytes_, static_cast<char>(0xff)); // not a number: an element that is not written is found
        const auto size = static_cast<std::size_t>(format_.bits / 8);
        for(std::size_t i = 0; i < tensor.values.size() && (!tensor.about.output || tensor.about.updated); ++i)
        {
            const std::uint32_t word = encode(tensor.values[i], format_);
            std::memcpy(&bytes[i * size], &word, size);
        }
        require(device.copy(address_, bytes.data(), bytes_, to_device), "copy");
    }
    DeviceTensor(const DeviceTensor&)            = delete;
    DeviceTensor& operator=(const DeviceTensor&) = delete;
    ~DeviceTensor() { device_.release(address_); }

    const void* address() const noexcept { return address_; }
    std::vector<double> download() const
    {
        std::vector<char> bytes(bytes_);
        require(device_.copy(bytes.data(), address_, bytes_, to_host), "copy");
        const auto size = static_cast<std::size_t>(format_.bits / 8);
        std::vector<double> values(bytes_ / size);
        for(std::size_t i = 0; i < values.size(); ++i)
        {
            std::uint32_t word = 0;
            std::memcpy(&word, &bytes[i * size], size);
            values[i] = decode(word, format_, fp8_);
        }
        return values;
    }

    private:
    static constexpr int to_device = 1, to_host = 2; // of hipMemcpyKind

    void require(int status, const char* action) const
    {
        if(status != 0)
            throw Error(std::string("cannot ") + action + " " + std::to_string(bytes_) +
                        " bytes on the device: " + device_.describe(status));
    }

    const tw_pack_device& device_;
    NumberFormat format_;
    std::string_view fp8_;
    std::uint64_t bytes_;
    void* address_ = nullptr;
};

inline CheckedOutput check_output(const HostTensor& expected, const std::vector<double>& actual,
                                  const NumberFormat& format, double roundings)
{
    CheckedOutput found{expected.about.name, 0, 0, 0, 0};
    std::vector<std::int64_t> index(expected.about.shape.size());
    for(bool more = true; more; )
    {
        const std::size_t place = expected.place(index);
        const double difference = std::fabs(actual.at(place) - expected.values.at(place));
        const double error      = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
        const double allowed    = roundings * find_ulp(expected.values[place], format);
        const double share      = error == 0 ? 0 : error / allowed; // infinite if it must be exact
        ++found.elements;
        found.wrong += !(share <= 1);
        found.largest_error = std::max(found.largest_error, error);
        found.largest_share = std::max(found.largest_share, share);
        more = false;
        for(std::size_t i = index.size(); i-- > 0 && !more; )
            if(++index[i] < expected.about.shape[i])
                more = true;
            else
                index[i] = 0;
    }
    return found;
}

} // namespace detail

// Tensors with whole numbers from -2 to 2 in the inputs, which all types represent and whose sums are exact, and zeros
// in the outputs. The same seed gives the same numbers.
inline std::vector<HostTensor> make_inputs(const std::vector<Tensor>& listed, std::string_view fp8, std::uint32_t seed = 1)
{
    std::vector<HostTensor> made;
    std::uint32_t state = seed;
    for(const Tensor& tensor : listed)
    {
        const auto size = static_cast<std::uint64_t>(detail::find_format(tensor.dtype, fp8).bits / 8);
        made.push_back({tensor, std::vector<double>(tensor.bytes / size)});
        for(double& value : made.back().values)
        {
            state = 1664525 * state + 1013904223;
            value = tensor.output && !tensor.updated ? 0 : static_cast<int>(state >> 16) % 5 - 2;
        }
    }
    return made;
}

// Runs a plan on the default stream and compares its outputs with those of your function.
inline Verification verify_with(Plan& plan, const HostReference& reference, const VerifyOptions& options = {})
{
    const tw_pack* pack = plan.stages().front().kernel.pack();
    if(!tw_pack_has_profiles(pack))
        throw Error("this pack cannot copy tensors: it is older than verify_with. Write it again.");
    const std::string_view fp8     = pack->fp8;
    std::vector<HostTensor> tensors = make_inputs(plan.tensors(), fp8, options.seed);
    std::vector<std::unique_ptr<detail::DeviceTensor>> copies;
    std::vector<const void*> addresses;
    for(const HostTensor& tensor : tensors)
    {
        copies.push_back(std::make_unique<detail::DeviceTensor>(*pack->device, tensor, fp8));
        addresses.push_back(copies.back()->address());
    }
    plan.run(addresses, nullptr, options.run);
    if(const int status = pack->device->wait_for_stream(nullptr))
        throw Error(std::string("the kernels failed: ") + pack->device->describe(status));
    reference(tensors);
    Verification found;
    for(std::size_t i = 0; i < tensors.size(); ++i)
        if(tensors[i].about.output)
            found.outputs.push_back(detail::check_output(tensors[i], copies[i]->download(),
                                                         detail::find_format(tensors[i].about.dtype, fp8),
                                                         options.roundings));
    return found;
}

// The same with the op's own reference. Include <tilewright/OP_reference.hpp>; not every op has one.
template <typename Problem>
Verification verify(Plan& plan, const Problem& problem, const VerifyOptions& options = {})
{
    static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
    const auto values = detail::complete(plan.stages().front().kernel.about(), problem);
    return verify_with(plan, [&](std::vector<HostTensor>& tensors) { compute_reference(values, tensors); }, options);
}

} // namespace tilewright

#endif
