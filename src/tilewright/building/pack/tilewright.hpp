// Tilewright packs in C++17: open a library of kernels, look for one, ask it, run it.
//
//   tilewright::Pack pack = tilewright::Pack::open("/opt/kernels", "gfx942");
//   auto args = tilewright::make_args<tw_xyz_args>();   // from the op's own header, tilewright/xyz.h
//   auto kernel = pack.best(args, [](const tilewright::Kernel& k) { return k.field("dtype_a") == "fp16"; });
//   kernel->run(args, stream);
//
// Arguments are checked against the kernel's op: a struct that no op has declared does not compile, the struct of
// another op throws. What fails throws tilewright::Error; that a kernel does not support a problem is no failure.
// All const functions may be called from several threads at once. Needs dlopen (link with ${CMAKE_DL_LIBS}) and
// no HIP header.
#ifndef TILEWRIGHT_HPP
#define TILEWRIGHT_HPP

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
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

struct Close
{
    void operator()(void* library) const noexcept { dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

inline std::string last_dl_error()
{
    const char* text = dlerror();
    return text == nullptr ? "the loader gives no reason" : text;
}

} // namespace detail

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
    explicit Kernel(const tw_pack_kernel& entry) noexcept : entry_(&entry) {}

    std::string_view slug() const noexcept { return entry_->slug; }
    std::string_view op() const noexcept { return entry_->op; }
    std::string_view symbol() const noexcept { return entry_->symbol; }
    std::string_view config() const noexcept { return entry_->config; } // one JSON object
    const tw_pack_kernel& entry() const noexcept { return *entry_; }

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
};

// A kernel that computes a problem, and how many microseconds it should take; that is empty where nobody knows.
struct Choice
{
    Kernel kernel;
    std::optional<double> us;
};

// The kernels of one library. Closes the library at its end: no kernel may be running or be used after that.
class Pack
{
    public:
    // The library of a pack's folder that is for `gpu`, a bare name such as "gfx942".
    static Pack open(const std::filesystem::path& folder, std::string_view gpu)
    {
        Pack pack(library_of(folder, gpu));
        if(pack.gpu() != gpu)
            throw Error(pack.file_ + " is for " + std::string(pack.gpu()) + ", not for " + std::string(gpu) +
                        " as its name says. Write the pack again.");
        return pack;
    }

    // One library file.
    static Pack open(const std::filesystem::path& library)
    {
        std::error_code error;
        if(std::filesystem::is_directory(library, error))
            throw Error(library.string() + " is a folder: say which GPU is meant, Pack::open(folder, \"gfx942\")");
        return Pack(library);
    }

    std::string_view name() const noexcept { return table_->name; }
    std::string_view version() const noexcept { return table_->version; }
    std::string_view gpu() const noexcept { return table_->gpu; }

    // Sorted by slug.
    std::vector<Kernel>::const_iterator begin() const noexcept { return kernels_.begin(); }
    std::vector<Kernel>::const_iterator end() const noexcept { return kernels_.end(); }
    std::size_t size() const noexcept { return kernels_.size(); }

    // The kernel of that name, if the pack has it.
    std::optional<Kernel> find(std::string_view slug) const
    {
        const auto found = std::lower_bound(begin(), end(), slug,
                                            [](const Kernel& kernel, std::string_view s) { return kernel.slug() < s; });
        if(found == end() || found->slug() != slug)
            return std::nullopt;
        return *found;
    }

    // The first kernel of an op for which `predicate(kernel)` is true. An op that no kernel has throws.
    template <typename Predicate>
    std::optional<Kernel> find_first(std::string_view op, Predicate&& predicate) const
    {
        bool known = false;
        for(const Kernel& kernel : kernels_)
            if(kernel.op() == op)
            {
                known = true;
                if(predicate(kernel))
                    return kernel;
            }
        if(!known)
            throw Error(file_ + " has no kernel of op '" + std::string(op) + "'. It has: " + ops());
        return std::nullopt;
    }

    // The kernels of the arguments' op that `filter(kernel)` accepts and that support the problem, fastest first.
    // Types and layouts are not in the arguments: the filter compares them with `field`. Kernels of an op that the
    // pack cannot rank come in the order of their slugs, without times.
    template <typename Args, typename Filter>
    std::vector<Choice> ranked(const Args& args, Filter&& filter) const
    {
        static_assert(detail::IsArgs<Args>::value, "not the arguments of an op: include the op's header of the pack");
        std::vector<std::uint64_t> numbers;
        find_first(Op<Args>::name, [&](const Kernel& kernel) {
            if(filter(kernel) && kernel.supports(args))
                numbers.push_back(static_cast<std::uint64_t>(&kernel - kernels_.data()));
            return false;
        });
        std::vector<Choice> choices;
        if(numbers.empty())
            return choices;
        std::vector<double> us(numbers.size());
        const tw_pack_rank_fn rank = tw_pack_rank_of(table_, &kernels_[numbers.front()].entry());
        if(rank != nullptr && rank(&args, numbers.data(), numbers.size(), us.data()) != TW_OK)
            throw Error(file_ + " cannot rank its kernels of op '" + Op<Args>::name + "' for these arguments");
        choices.reserve(numbers.size());
        for(std::size_t i = 0; i < numbers.size(); ++i)
            choices.push_back({kernels_[numbers[i]], rank == nullptr ? std::nullopt : std::optional<double>(us[i])});
        return choices;
    }

    // The first of `ranked`, if there is one.
    template <typename Args, typename Filter>
    std::optional<Kernel> best(const Args& args, Filter&& filter) const
    {
        const std::vector<Choice> choices = ranked(args, std::forward<Filter>(filter));
        if(choices.empty())
            return std::nullopt;
        return choices.front().kernel;
    }

    private:
    // An absolute path: the loader would look for a bare name in the folders of the system.
    explicit Pack(const std::filesystem::path& library)
        : file_(std::filesystem::absolute(library).string()), library_(dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL))
    {
        if(!library_)
            throw Error("cannot load a pack: " + detail::last_dl_error());
        // POSIX lets a function travel through the void* of dlsym.
        const auto table = reinterpret_cast<tw_pack_table_fn>(dlsym(library_.get(), "tw_pack_table"));
        if(table == nullptr)
            throw Error(file_ + " is no library of a pack: it has no tw_pack_table");
        table_ = table();
        if(table_->schema != TW_PACK_SCHEMA || table_->kernel_size < least_size)
            throw Error(file_ + " has a table of schema " + std::to_string(table_->schema) + " with " +
                        std::to_string(table_->kernel_size) + " bytes per kernel, this program reads schema " +
                        std::to_string(TW_PACK_SCHEMA) + " with at least " + std::to_string(least_size) +
                        ". Compile it with the headers of the pack.");
        kernels_.reserve(table_->count);
        for(std::uint64_t i = 0; i < table_->count; ++i)
            kernels_.emplace_back(*tw_pack_kernel_at(table_, i));
    }

    // A pack's libraries are lib/lib<name>_<gpu>.so.
    static std::filesystem::path library_of(const std::filesystem::path& folder, std::string_view gpu)
    {
        const std::string ending = "_" + std::string(gpu) + ".so";
        std::vector<std::string> all, fitting;
        std::error_code error;
        for(const auto& file : std::filesystem::directory_iterator(folder / "lib", error))
        {
            const std::string name = file.path().filename().string();
            if(name.size() < 3 || name.compare(name.size() - 3, 3, ".so") != 0)
                continue;
            all.push_back(name);
            if(name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0)
                fitting.push_back(name);
        }
        if(error)
            throw Error((folder / "lib").string() + " cannot be listed: " + error.message() + ". Is it a pack?");
        if(fitting.size() == 1)
            return folder / "lib" / fitting.front();
        const std::string advice =
            fitting.empty() ? "A GPU is named without features: \"gfx942\", not \"gfx942:xnack-\"."
                            : "Open one of them by its path.";
        throw Error(folder.string() + " has " + std::to_string(fitting.size()) + " libraries for '" +
                    std::string(gpu) + "', need 1. It has: " + listed(std::move(all)) + ". " + advice);
    }

    std::string ops() const
    {
        std::vector<std::string> names;
        for(const Kernel& kernel : kernels_)
            names.emplace_back(kernel.op());
        return listed(std::move(names));
    }

    static std::string listed(std::vector<std::string> names)
    {
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        std::string text;
        for(const std::string& name : names)
            text += (text.empty() ? "" : ", ") + name;
        return text.empty() ? "(none)" : text;
    }

    // Libraries of the first Tilewright end before `rank`.
    static constexpr std::size_t least_size = offsetof(tw_pack_kernel, rank);

    std::string file_;
    detail::Library library_;
    const tw_pack* table_ = nullptr;
    std::vector<Kernel> kernels_;
};

} // namespace tilewright

#endif
