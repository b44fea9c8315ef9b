// One kernel of a pack: its fields, why it does not support a problem, and its functions.
#ifndef TILEWRIGHT_KERNEL_HPP
#define TILEWRIGHT_KERNEL_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pack.h"

namespace tilewright {

// Something that cannot be done: the text has the fact, the limit and what to do.
class Error : public std::runtime_error
{
    public:
    using std::runtime_error::runtime_error;
};

// A kernel refused a call. `status` is one of tw_status, the text is the kernel's own.
class KernelError : public Error
{
    public:
    KernelError(const std::string& text, int status) : Error(text), status_(status) {}
    int status() const noexcept { return status_; }

    private:
    int status_;
};

// Every op's header says here which op its struct of arguments belongs to, and which version of it.
template <typename Args>
struct Op;

namespace detail {

template <typename Args, typename = void>
struct IsArgs : std::false_type
{
};
template <typename Args>
struct IsArgs<Args, std::void_t<decltype(Op<Args>::name), decltype(Op<Args>::abi_version), decltype(Args::size)>>
    : std::true_type
{
};

template <typename Problem, typename = void>
struct IsProblem : std::false_type
{
};
template <typename Problem>
struct IsProblem<Problem, std::void_t<typename Problem::Values, decltype(Problem::op), decltype(Problem::digest)>>
    : std::true_type
{
};

inline std::string list_names(std::vector<std::string> names)
{
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::string text;
    for(const std::string& name : names)
        text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "(none)" : text;
}

// As std::stable_sort, which some compilers warn about.
template <typename Item, typename Less>
void sort_stable(std::vector<Item>& items, Less less)
{
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return less(items[a], items[b]) || (!less(items[b], items[a]) && a < b);
    });
    std::vector<Item> sorted;
    sorted.reserve(items.size());
    for(const std::size_t place : order)
        sorted.push_back(std::move(items[place]));
    items = std::move(sorted);
}

// The place of a name among those that a field takes, from 1.
inline std::int64_t
number_of(const char* field, std::string_view name, std::initializer_list<std::string_view> known)
{
    const auto found = std::find(known.begin(), known.end(), name);
    if(found == known.end())
        throw Error("unknown " + std::string(field) + " '" + std::string(name) +
                    "'. Known: " + list_names({known.begin(), known.end()}) + ".");
    return found - known.begin() + 1;
}

inline void set_extents(const char* field, tw_extents& extents, std::initializer_list<std::int64_t> values)
{
    if(values.size() < 1 || values.size() > TW_MAX_EXTENTS)
        throw Error(std::string(field) + " has " + std::to_string(values.size()) + " numbers, it takes 1 to " +
                    std::to_string(TW_MAX_EXTENTS));
    extents = {};
    extents.count = static_cast<std::int64_t>(values.size());
    std::copy(values.begin(), values.end(), extents.values);
}

// A problem whose fields a library has checked and completed.
template <typename Problem>
typename Problem::Values complete(const tw_pack_op& about, const Problem& problem)
{
    if(std::string_view(about.name) != Problem::op)
        throw Error("this is a problem of op '" + std::string(Problem::op) + "', the kernel is of op '" + about.name +
                    "'");
    if(std::string_view(about.problem_digest) != Problem::digest)
        throw Error("the library has another declaration of problems of '" + std::string(Problem::op) +
                    "' than this program. Compile it with the headers of the pack.");
    typename Problem::Values values = problem.values();
    char message[TW_MESSAGE_SIZE]   = "";
    if(about.complete(&values, message, sizeof(message)) != TW_OK)
        throw Error("invalid " + std::string(Problem::op) + " problem: " + message);
    return values;
}

} // namespace detail

// Why a kernel does not support a problem: the rule that rejects it, with its numbers.
struct Reason
{
    std::string code;    // "S503"
    std::string rule;    // "n-not-tiled"
    std::string message; // "N = 200 is not a multiple of block n = 128"
    std::string field;   // of the kernel or the problem; may be empty
    std::string advice;

    std::string text() const { return code + " " + rule + ": " + message; }
};

// An op's struct of arguments, all zero but its size, which every call looks at.
template <typename Args>
Args make_args()
{
    static_assert(detail::IsArgs<Args>::value, "not the arguments of an op: include the op's header of the pack");
    Args args{};
    args.size = sizeof(Args);
    return args;
}

// One kernel of an open pack. A small value that may be copied; it must not be used after its pack is gone.
class Kernel
{
    public:
    explicit Kernel(const tw_pack_kernel& entry, const tw_pack* pack = nullptr) noexcept : entry_(&entry), pack_(pack)
    {
    }

    std::string_view slug() const noexcept { return entry_->slug; }
    std::string_view op() const noexcept { return entry_->op; }
    std::string_view symbol() const noexcept { return entry_->symbol; }
    std::string_view config() const noexcept { return entry_->config; } // one JSON object
    std::string_view gpu() const noexcept { return pack_ == nullptr ? "" : pack_->gpu; }
    const tw_pack_kernel& entry() const noexcept { return *entry_; }
    const tw_pack* pack() const noexcept { return pack_; }
    bool operator==(const Kernel& other) const noexcept { return entry_ == other.entry_; }
    bool operator!=(const Kernel& other) const noexcept { return entry_ != other.entry_; }

    // The problems of its op. A library without them throws.
    const tw_pack_op& about() const
    {
        const tw_pack_op* found = pack_ == nullptr ? nullptr : tw_pack_op_of(pack_, entry_);
        if(found == nullptr)
            throw Error(std::string(slug()) + " is in a library without problems of op '" + entry_->op +
                        "'. Use its arguments, or write the pack again.");
        return *found;
    }

    // Why the kernel does not support a problem; empty if it does. An invalid problem throws.
    template <typename Problem>
    std::optional<Reason> why_not(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
        const auto values = detail::complete(about(), problem);
        return why_not_completed(&values);
    }

    // The same for a problem that `about().complete` has completed.
    std::optional<Reason> why_not_completed(const void* problem) const
    {
        tw_reason why;
        const int status = about().why_not(problem, entry_->number, &why);
        if(status == TW_OK)
            return std::nullopt;
        if(status != TW_UNSUPPORTED)
            throw Error(std::string(slug()) + ": its fit rules cannot be asked");
        return Reason{why.code, why.rule, why.message, why.field, why.advice};
    }

    // The value of one field of the config: texts as they are, other values as JSON.
    std::string_view field(std::string_view name) const
    {
        const tw_pack_field* end   = entry_->fields + entry_->field_count;
        const tw_pack_field* found = std::find_if(entry_->fields, end, [&](const auto& f) { return f.name == name; });
        if(found != end)
            return found->value;
        std::string known;
        for(const tw_pack_field* f = entry_->fields; f != end; ++f)
            known += (known.empty() ? "" : ", ") + std::string(f->name);
        throw Error("unknown field '" + std::string(name) + "' of " + entry_->slug + ". Known: " + known + ".");
    }

    // The profiles that the kernel is in: the integrations that need it, such as "flash".
    std::vector<std::string_view> profiles() const
    {
        std::vector<std::string_view> found;
        for(std::uint64_t i = 0; i < profile_count(); ++i)
            if(tw_pack_profiles_of(pack_, entry_) >> i & 1)
                found.emplace_back(entry_->about->profiles[i].name);
        return found;
    }

    // The place of a profile of its op, by its name or by one of the numbers that CK's generators know it by.
    std::optional<std::uint64_t> find_profile(std::string_view name) const
    {
        for(std::uint64_t i = 0; i < profile_count(); ++i)
        {
            const tw_pack_field& profile = entry_->about->profiles[i];
            const std::string aliases    = "," + std::string(profile.value) + ",";
            if(profile.name == name ||
               (!name.empty() && name.find(',') == name.npos && aliases.find("," + std::string(name) + ",") != std::string::npos))
                return i;
        }
        return std::nullopt;
    }
    bool in_profile(std::string_view name) const
    {
        const auto place = find_profile(name);
        return place && (tw_pack_profiles_of(pack_, entry_) >> *place & 1) != 0;
    }

    // Whether the kernel can compute this problem; if not, `message` says why. Unusable arguments throw.
    // The arguments do not tell types and layouts: compare these with `field`.
    template <typename Args>
    bool supports(const Args& args) const
    {
        require_op<Args>();
        const int status = entry_->supports(&args);
        if(status != TW_UNSUPPORTED)
            require_ok(status, "supports");
        return status == TW_OK;
    }

    // How many bytes of device memory `run` needs in args.workspace.
    template <typename Args>
    std::uint64_t workspace_size(const Args& args) const
    {
        require_op<Args>();
        std::uint64_t bytes = 0;
        require_ok(entry_->workspace_size(&args, &bytes), "workspace_size");
        return bytes;
    }

    // Start the kernel on a hipStream_t (null: the default stream). Returns when it is queued, not when it is done.
    template <typename Args>
    void run(const Args& args, void* stream) const
    {
        require_op<Args>();
        require_ok(entry_->run(&args, stream), "run");
    }

    // Why this thread's last call to a kernel of this op did not succeed.
    std::string_view message() const { return entry_->message(); }

    private:
    std::uint64_t profile_count() const noexcept
    {
        const bool known = pack_ != nullptr && tw_pack_has_profiles(pack_) && entry_->about != nullptr;
        return known ? entry_->about->profile_count : 0;
    }

    template <typename Args>
    void require_op() const
    {
        static_assert(detail::IsArgs<Args>::value, "not the arguments of an op: include the op's header of the pack");
        if(op() != Op<Args>::name)
            throw Error(std::string(slug()) + " takes arguments of op '" + entry_->op + "', these are of op '" +
                        Op<Args>::name + "'");
        if(entry_->abi_version != Op<Args>::abi_version)
            throw Error(std::string(slug()) + " has version " + std::to_string(entry_->abi_version) +
                        " of the interface of '" + entry_->op + "', this program has " +
                        std::to_string(Op<Args>::abi_version) + ". Compile it with the headers of the pack.");
    }

    void require_ok(int status, const char* function) const
    {
        if(status != TW_OK)
            throw KernelError(std::string(slug()) + ": " + function + " failed: " + entry_->message(), status);
    }

    const tw_pack_kernel* entry_;
    const tw_pack* pack_;
};

// A kernel that computes a problem, and how many microseconds it should take; that is empty where nobody knows.
struct Choice
{
    Kernel kernel;
    std::optional<double> us;
};

} // namespace tilewright

#endif
