// The launches of a problem: its stages in order, the memory between them, and the workspaces of its kernels.
#ifndef TILEWRIGHT_PLAN_HPP
#define TILEWRIGHT_PLAN_HPP

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernel.hpp"

namespace tilewright {

// A tensor of a problem. Strides are in elements, bytes go from its first to its last element.
struct Tensor
{
    std::string name, dtype;
    std::vector<std::int64_t> shape, strides;
    bool output, updated; // an updated output has contents that are read
    std::uint64_t bytes;
};

// One launch of a plan.
struct Stage
{
    struct Route
    {
        std::size_t tensor;   // its place among the plan's tensors, followed by its intermediates
        std::uint64_t offset; // of its address in the arguments
    };

    Kernel kernel;
    std::optional<double> us;        // that it should take
    std::vector<std::uint64_t> args; // the arguments without addresses
    std::uint64_t workspace;         // bytes
    std::vector<Route> routes;
};

struct RunOptions
{
    // Device memory of `Plan::memory_size` bytes for what is between stages, and for workspaces. Without it, the plan
    // allocates some at its first run in a thread and stream, and keeps it.
    void* memory = nullptr;
    // That inputs which need it are prepared: see `Plan::preparations`.
    bool prepared = false;
};

// Made by a pack or a registry. It keeps its libraries loaded. Any number of threads may run it at once.
class Plan
{
    public:
    Plan(std::vector<Tensor> tensors, std::vector<Tensor> intermediates, std::vector<Stage> stages,
         std::vector<std::shared_ptr<void>> libraries)
        : libraries_(std::move(libraries)),
          tensors_(std::move(tensors)),
          intermediates_(std::move(intermediates)),
          stages_(std::move(stages))
    {
        for(const Tensor& tensor : intermediates_)
            memory_size_ += aligned(tensor.bytes);
        for(const Stage& stage : stages_)
            memory_size_ += aligned(stage.workspace);
    }
    Plan(const Plan&)            = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan()
    {
        for(const auto& [key, address] : memory_)
            device().release(address);
    }

    // Those that `run` takes, inputs first.
    const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
    // Those between stages, which the plan has memory for.
    const std::vector<Tensor>& intermediates() const noexcept { return intermediates_; }
    const std::vector<Stage>& stages() const noexcept { return stages_; }
    // Bytes of device memory for intermediates and workspaces; 0 for most plans of one kernel.
    std::uint64_t memory_size() const noexcept { return memory_size_; }

    // Inputs that must be prepared before they are passed: the name of each, and what to do.
    std::vector<std::pair<std::string, std::string>> preparations() const
    {
        std::vector<std::pair<std::string, std::string>> found;
        const tw_pack_kernel& entry = stages_.front().kernel.entry();
        for(std::uint64_t i = 0; i < entry.prepared_count; ++i)
            found.emplace_back(entry.prepared[i].name, entry.prepared[i].value);
        return found;
    }

    // Launch all stages on a hipStream_t (null: the default stream). `addresses` are those of `tensors`, in device
    // memory. Returns when the kernels are queued, not when they are done.
    void run(const std::vector<const void*>& addresses, void* stream, const RunOptions& options = {})
    {
        if(addresses.size() != tensors_.size())
            throw Error("the plan takes " + std::to_string(tensors_.size()) + " tensors, got " +
                        std::to_string(addresses.size()) + ". It takes: " + list(tensors_));
        if(!options.prepared && stages_.front().kernel.entry().prepared_count > 0)
            throw Error(std::string(stages_.front().kernel.slug()) + " needs " + preparations().front().first +
                        " prepared: " + preparations().front().second +
                        " Then pass RunOptions with prepared = true, or plan with a filter that leaves such kernels out.");
        auto* memory = static_cast<char*>(options.memory);
        if(memory == nullptr && memory_size_ > 0)
            memory = static_cast<char*>(find_memory(stream));
        std::vector<const void*> every = addresses;
        for(const Tensor& tensor : intermediates_)
        {
            every.push_back(memory);
            memory += aligned(tensor.bytes);
        }
        for(const Stage& stage : stages_)
        {
            launch(stage, every, memory, stream);
            memory += aligned(stage.workspace);
        }
    }

    // The kernels in order, with what is between them.
    std::string text() const
    {
        std::string text;
        for(std::size_t i = 0; i < stages_.size(); ++i)
            text += std::to_string(i + 1) + ". " + std::string(stages_[i].kernel.slug()) + ", workspace " +
                    std::to_string(stages_[i].workspace) + " bytes\n";
        for(const Tensor& tensor : intermediates_)
            text += "between  " + tensor.name + ", " + std::to_string(tensor.bytes) + " bytes of " + tensor.dtype + "\n";
        return text;
    }

    private:
    // Of every allocation of HIP, and more than any kernel needs.
    static std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

    static std::string list(const std::vector<Tensor>& tensors)
    {
        std::string text;
        for(const Tensor& tensor : tensors)
            text += (text.empty() ? "" : ", ") + tensor.name;
        return text;
    }

    const tw_pack_device& device() const { return *tw_pack_device_of(stages_.front().kernel.pack()); }

    // Launches of one thread in one stream follow each other, so they share memory; others have their own.
    void* find_memory(void* stream)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        void*& address = memory_[{std::this_thread::get_id(), stream}];
        if(address == nullptr)
            if(const int status = device().allocate(&address, memory_size_))
            {
                memory_.erase({std::this_thread::get_id(), stream});
                throw Error("cannot allocate " + std::to_string(memory_size_) +
                            " bytes for what is between the kernels of a plan: " + device().describe(status));
            }
        return address;
    }

    static void launch(const Stage& stage, const std::vector<const void*>& addresses, void* workspace, void* stream)
    {
        std::vector<std::uint64_t> args = stage.args;
        auto* bytes                     = reinterpret_cast<char*>(args.data());
        for(const Stage::Route& route : stage.routes)
            std::memcpy(bytes + route.offset, &addresses[route.tensor], sizeof(void*));
        const tw_pack_op& about = stage.kernel.about();
        if(stage.workspace > 0)
        {
            std::memcpy(bytes + about.workspace_offset, &workspace, sizeof(workspace));
            std::memcpy(bytes + about.workspace_size_offset, &stage.workspace, sizeof(stage.workspace));
        }
        const tw_pack_kernel& entry = stage.kernel.entry();
        if(const int status = entry.run(args.data(), stream))
            throw KernelError(std::string(entry.slug) + ": run failed: " + entry.message(), status);
    }

    std::vector<std::shared_ptr<void>> libraries_; // the last to go
    std::vector<Tensor> tensors_, intermediates_;
    std::vector<Stage> stages_;
    std::uint64_t memory_size_ = 0;
    std::mutex lock_;
    std::map<std::pair<std::thread::id, void*>, void*> memory_;
};

namespace detail {

inline std::vector<tw_tensor> list_c_tensors(const tw_pack_op& about, const void* problem)
{
    std::vector<tw_tensor> found(about.most_tensors);
    std::uint64_t count = 0;
    if(about.tensors(problem, found.data(), &count) != TW_OK)
        throw Error("the tensors of this " + std::string(about.name) + " problem are unknown");
    found.resize(count);
    return found;
}

inline Tensor make_tensor(const tw_tensor& t)
{
    return {t.name, t.dtype, {t.shape, t.shape + t.rank}, {t.strides, t.strides + t.rank}, t.output != 0,
            t.updated != 0, t.bytes};
}

inline std::vector<Tensor> list_tensors(const tw_pack_op& about, const void* problem)
{
    std::vector<Tensor> made;
    for(const tw_tensor& t : list_c_tensors(about, problem))
        made.push_back(make_tensor(t));
    return made;
}

// The kernels that come nearest to supporting a problem: those that only the last rules reject.
inline std::string describe_nearest(std::vector<Kernel> kernels, const void* problem)
{
    std::vector<std::pair<Reason, std::string>> reasons;
    for(const Kernel& kernel : kernels)
        if(auto reason = kernel.why_not_completed(problem))
            reasons.emplace_back(std::move(*reason), kernel.slug());
    sort_stable(reasons, [](const auto& a, const auto& b) { return a.first.code > b.first.code; });
    std::string text;
    for(std::size_t i = 0; i < reasons.size() && i < 3; ++i)
        text += "\n  " + reasons[i].second + ": " + reasons[i].first.text() + ". " + reasons[i].first.advice;
    return text;
}

// The arguments of one stage, and where the addresses of its tensors go. `names` are the tensors that exist so far;
// those that the stage writes first are added, and are intermediates.
inline Stage make_stage(const Choice& choice, const tw_pack_op& about, const void* problem,
                        std::vector<std::string>& names, std::vector<Tensor>& intermediates)
{
    Stage stage{choice.kernel, choice.us, std::vector<std::uint64_t>((about.args_size + 7) / 8), 0, {}};
    if(about.arguments(problem, stage.args.data()) != TW_OK)
        throw Error("this " + std::string(about.name) + " problem has no arguments");
    const tw_pack_kernel& entry = choice.kernel.entry();
    if(const int status = entry.workspace_size(stage.args.data(), &stage.workspace))
        throw KernelError(std::string(entry.slug) + ": workspace_size failed: " + entry.message(), status);
    if(stage.workspace > 0 && about.workspace_offset == 0)
        throw Error(std::string(entry.slug) + " needs a workspace, but calls of " + about.name + " have none");
    for(const tw_tensor& tensor : list_c_tensors(about, problem))
    {
        auto found = std::find(names.begin(), names.end(), tensor.name);
        if(found == names.end())
        {
            if(!tensor.output || tensor.updated)
                throw Error("a stage of this " + std::string(about.name) + " problem reads " + tensor.name +
                            ", which no earlier one writes");
            intermediates.push_back(make_tensor(tensor));
            found = names.insert(names.end(), tensor.name);
        }
        stage.routes.push_back({static_cast<std::size_t>(found - names.begin()), tensor.offset});
    }
    return stage;
}

// The plan of a completed problem. `rank(problem)` ranks the kernels for one stage, `kernels()` are all of them.
template <typename Rank, typename Kernels>
std::shared_ptr<Plan> make_plan(const tw_pack_op& about, const void* problem, Rank&& rank, Kernels&& kernels,
                                std::vector<std::shared_ptr<void>> libraries)
{
    std::vector<std::vector<std::uint64_t>> problems;
    for(;;)
    {
        std::vector<std::uint64_t> stage((about.problem_size + 7) / 8);
        int found = 0;
        if(about.stage(problem, problems.size(), stage.data(), &found) != TW_OK)
            throw Error("this " + std::string(about.name) + " problem cannot be divided into stages");
        if(!found)
            break;
        problems.push_back(std::move(stage));
    }
    std::vector<Tensor> whole = list_tensors(about, problem), intermediates;
    std::vector<std::string> names;
    for(const Tensor& tensor : whole)
        names.push_back(tensor.name);
    std::vector<Stage> stages;
    for(const auto& stage : problems)
    {
        std::vector<Choice> choices = rank(stage.data());
        // Kernels of several stages pass tensors on as they are.
        if(problems.size() > 1)
            choices.erase(std::remove_if(choices.begin(), choices.end(),
                                         [](const Choice& c) { return c.kernel.entry().prepared_count > 0; }),
                          choices.end());
        if(choices.empty())
        {
            const std::vector<Kernel> all = kernels();
            throw Error("no kernel of " + std::to_string(all.size()) + " supports stage " +
                        std::to_string(stages.size() + 1) + " of " + std::to_string(problems.size()) + " of this " +
                        about.name + " problem. The nearest:" + describe_nearest(all, stage.data()));
        }
        stages.push_back(make_stage(choices.front(), about, stage.data(), names, intermediates));
    }
    return std::make_shared<Plan>(std::move(whole), std::move(intermediates), std::move(stages), std::move(libraries));
}

// Plans by problem.
class PlanCache
{
    public:
    template <typename Make>
    std::shared_ptr<Plan> find(const tw_pack_op& about, const void* problem, Make&& make)
    {
        const std::string key = std::string(about.name) + '\0' +
                                std::string(static_cast<const char*>(problem), about.problem_size);
        const std::lock_guard<std::mutex> guard(lock_);
        const auto known = plans_.find(key);
        if(known != plans_.end())
            return known->second;
        auto made = make();
        if(plans_.size() >= most)
            plans_.clear();
        return plans_[key] = std::move(made);
    }
    void clear()
    {
        const std::lock_guard<std::mutex> guard(lock_);
        plans_.clear();
    }

    private:
    static constexpr std::size_t most = 4096; // a program with more shapes makes some of them again
    std::mutex lock_;
    std::map<std::string, std::shared_ptr<Plan>> plans_;
};

} // namespace detail
} // namespace tilewright

#endif
