// The kernels of one library of a pack: find, rank, plan.
#ifndef TILEWRIGHT_LIBRARY_HPP
#define TILEWRIGHT_LIBRARY_HPP

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kernel.hpp"
#include "plan.hpp"

namespace tilewright {

namespace detail {

// Closes the library when the pack and all of its plans are gone.
inline std::shared_ptr<void> open_library(const char* file)
{
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return {library, [](void* opened) {
                if(opened != nullptr)
                    dlclose(opened);
            }};
}

inline std::string last_dl_error()
{
    const char* text = dlerror();
    return text == nullptr ? "the loader gives no reason" : text;
}

} // namespace detail

// The kernels of one library. The library is closed when the pack and its plans are gone: no kernel may be running or be
// used after that.
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
    const tw_pack* table() const noexcept { return table_; }

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

    // The kernels of the problem's op that `filter(kernel)` accepts and that support the problem, fastest first. They
    // have the problem's types and layouts: other kernels do not support it. Kernels of an op that the pack cannot
    // rank come in the order of their slugs, without times.
    //
    // With the arguments of an op instead of a problem, the filter must compare types and layouts with `field`: the
    // arguments do not tell them.
    template <typename Problem, typename Filter>
    std::vector<Choice> ranked(const Problem& problem, Filter&& filter) const
    {
        if constexpr(detail::IsProblem<Problem>::value)
        {
            const tw_pack_op& about = problems_of(Problem::op);
            const auto values       = detail::complete(about, problem);
            return ranked_completed(about, &values, filter);
        }
        else
            return ranked_arguments(problem, filter);
    }
    template <typename Problem>
    std::vector<Choice> ranked(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "arguments do not tell types and layouts: pass a filter, too");
        return ranked(problem, [](const Kernel&) { return true; });
    }

    // The first of `ranked`, if there is one.
    template <typename Problem, typename Filter>
    std::optional<Kernel> best(const Problem& problem, Filter&& filter) const
    {
        const std::vector<Choice> choices = ranked(problem, filter);
        if(choices.empty())
            return std::nullopt;
        return choices.front().kernel;
    }
    template <typename Problem>
    std::optional<Kernel> best(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "arguments do not tell types and layouts: pass a filter, too");
        return best(problem, [](const Kernel&) { return true; });
    }

    // The launches of a problem, with the best kernel for each stage. Kept: an equal problem gets the same plan. A
    // problem that no kernels compute throws, with the reasons of the nearest ones.
    template <typename Problem>
    std::shared_ptr<Plan> plan(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
        const tw_pack_op& about = problems_of(Problem::op);
        const auto values       = detail::complete(about, problem);
        return plans_->find(about, &values, [&] { return make_plan(about, &values, [](const Kernel&) { return true; }); });
    }

    // The same with the kernels that `filter(kernel)` accepts. It is not kept.
    template <typename Problem, typename Filter>
    std::shared_ptr<Plan> plan(const Problem& problem, Filter&& filter) const
    {
        static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
        const tw_pack_op& about = problems_of(Problem::op);
        const auto values       = detail::complete(about, problem);
        return make_plan(about, &values, filter);
    }

    // The tensors of a problem: those that `Plan::run` takes, in their order.
    template <typename Problem>
    std::vector<Tensor> tensors(const Problem& problem) const
    {
        const tw_pack_op& about = problems_of(Problem::op);
        const auto values       = detail::complete(about, problem);
        return detail::list_tensors(about, &values);
    }

    // The problems of an op. An op that no kernel has throws.
    const tw_pack_op& problems_of(std::string_view op) const
    {
        const auto any = find_first(op, [](const Kernel&) { return true; });
        return any->about();
    }

    // `ranked` for a problem that `about.complete` has completed.
    template <typename Filter>
    std::vector<Choice> ranked_completed(const tw_pack_op& about, const void* problem, Filter&& filter) const
    {
        std::vector<std::uint64_t> numbers;
        for(const Kernel& kernel : kernels_)
            if(kernel.op() == about.name && filter(kernel) &&
               about.why_not(problem, kernel.entry().number, nullptr) == TW_OK)
                numbers.push_back(kernel.entry().number);
        std::vector<double> us(numbers.size());
        if(about.rank != nullptr && about.rank(problem, numbers.data(), numbers.size(), us.data()) != TW_OK)
            throw Error(file_ + " cannot rank its kernels of op '" + about.name + "' for this problem");
        return list_choices(numbers, about.rank == nullptr ? nullptr : us.data());
    }

    private:
    template <typename Filter>
    std::shared_ptr<Plan> make_plan(const tw_pack_op& about, const void* problem, Filter&& filter) const
    {
        const auto rank = [&](const void* stage) { return ranked_completed(about, stage, filter); };
        const auto kernels = [&] {
            std::vector<Kernel> own;
            std::copy_if(kernels_.begin(), kernels_.end(), std::back_inserter(own),
                         [&](const Kernel& kernel) { return kernel.op() == about.name && filter(kernel); });
            return own;
        };
        return detail::make_plan(about, problem, rank, kernels, {library_});
    }

    template <typename Args, typename Filter>
    std::vector<Choice> ranked_arguments(const Args& args, Filter&& filter) const
    {
        static_assert(detail::IsArgs<Args>::value, "not the arguments of an op: include the op's header of the pack");
        std::vector<std::uint64_t> numbers;
        find_first(Op<Args>::name, [&](const Kernel& kernel) {
            if(filter(kernel) && kernel.supports(args))
                numbers.push_back(static_cast<std::uint64_t>(&kernel - kernels_.data()));
            return false;
        });
        if(numbers.empty())
            return {};
        std::vector<double> us(numbers.size());
        const tw_pack_rank_fn rank = tw_pack_rank_of(table_, &kernels_[numbers.front()].entry());
        if(rank != nullptr && rank(&args, numbers.data(), numbers.size(), us.data()) != TW_OK)
            throw Error(file_ + " cannot rank its kernels of op '" + Op<Args>::name + "' for these arguments");
        return list_choices(numbers, rank == nullptr ? nullptr : us.data());
    }

    std::vector<Choice> list_choices(const std::vector<std::uint64_t>& numbers, const double* us) const
    {
        std::vector<Choice> choices;
        choices.reserve(numbers.size());
        for(std::size_t i = 0; i < numbers.size(); ++i)
            choices.push_back({kernels_[numbers[i]], us == nullptr ? std::nullopt : std::optional<double>(us[i])});
        return choices;
    }

    // An absolute path: the loader would look for a bare name in the folders of the system.
    explicit Pack(const std::filesystem::path& library)
        : file_(std::filesystem::absolute(library).string()), library_(detail::open_library(file_.c_str()))
    {
        if(!library_)
            throw Error("cannot load a pack: " + detail::last_dl_error());
        // POSIX lets a function travel through the void* of dlsym.
        const auto table = reinterpret_cast<tw_pack_table_fn>(dlsym(library_.get(), "tw_pack_table"));
        if(table == nullptr)
            throw Error(file_ + " is not a library of a pack: it has no tw_pack_table");
        table_ = table();
        if(table_->schema != TW_PACK_SCHEMA || table_->kernel_size < least_size)
            throw Error(file_ + " has a table of schema " + std::to_string(table_->schema) + " with " +
                        std::to_string(table_->kernel_size) + " bytes per kernel, this program reads schema " +
                        std::to_string(TW_PACK_SCHEMA) + " with at least " + std::to_string(least_size) +
                        ". Compile it with the headers of the pack.");
        kernels_.reserve(table_->count);
        for(std::uint64_t i = 0; i < table_->count; ++i)
            kernels_.emplace_back(*tw_pack_kernel_at(table_, i), table_);
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
                    std::string(gpu) + "', need 1. It has: " + detail::list_names(std::move(all)) + ". " + advice);
    }

    std::string ops() const
    {
        std::vector<std::string> names;
        for(const Kernel& kernel : kernels_)
            names.emplace_back(kernel.op());
        return detail::list_names(std::move(names));
    }

    // Libraries of the first Tilewright end before `rank`.
    static constexpr std::size_t least_size = offsetof(tw_pack_kernel, rank);

    std::string file_;
    std::shared_ptr<void> library_;
    const tw_pack* table_ = nullptr;
    std::vector<Kernel> kernels_;
    std::unique_ptr<detail::PlanCache> plans_ = std::make_unique<detail::PlanCache>();
};

} // namespace tilewright

#endif
