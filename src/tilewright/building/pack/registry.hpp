// Kernels of several packs: find, filter, merge, priorities, strategies, JSON.
#ifndef TILEWRIGHT_REGISTRY_HPP
#define TILEWRIGHT_REGISTRY_HPP

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "library.hpp"

namespace tilewright {

// The order of the kernels that support a problem; they come with their estimates, fastest first.
using Strategy = std::function<std::vector<Choice>(std::vector<Choice>)>;

// As a registry ranks without a strategy: by tuned tables, estimates and learned models.
inline std::vector<Choice> by_estimate(std::vector<Choice> choices) { return choices; }

// In the order of the names of kernels, whatever their estimates are.
inline std::vector<Choice> first_fit(std::vector<Choice> choices)
{
    detail::sort_stable(choices, [](const Choice& a, const Choice& b) { return a.kernel.slug() < b.kernel.slug(); });
    return choices;
}

// Kernels of packs, each with a priority: those of a higher one are always tried first. It keeps its packs open. Changing
// it makes plans anew; otherwise any number of threads may use it at once.
class Registry
{
    public:
    struct Entry
    {
        Kernel kernel;
        int priority;
    };

    Registry() = default;
    explicit Registry(Pack pack) { add(std::move(pack)); }

    // Adds the kernels of a pack. Of a kernel that is there already, that of the higher priority stays, else the first.
    Registry& add(Pack pack, int priority = 0)
    {
        const auto kept = std::make_shared<Pack>(std::move(pack));
        packs_.push_back(kept);
        for(const Kernel& kernel : *kept)
            insert({kernel, priority});
        return *this;
    }

    // Adds the kernels of another registry, with their priorities.
    Registry& merge(const Registry& other)
    {
        packs_.insert(packs_.end(), other.packs_.begin(), other.packs_.end());
        for(const Entry& entry : other.entries_)
            insert(entry);
        return *this;
    }

    // Those kernels for which `predicate(kernel)` is true.
    template <typename Predicate>
    Registry filter(Predicate&& predicate) const
    {
        Registry made;
        made.packs_    = packs_;
        made.strategy_ = strategy_;
        std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(made.entries_),
                     [&](const Entry& entry) { return predicate(entry.kernel); });
        return made;
    }
    // Kernels of one op with these values of fields: `filter("xyz", {{"dtype_a", "fp16"}, {"layout", "rcr"}})`.
    Registry filter(std::string_view op, const std::map<std::string, std::string>& fields) const
    {
        return filter([&](const Kernel& kernel) {
            return kernel.op() == op && std::all_of(fields.begin(), fields.end(), [&](const auto& field) {
                       return kernel.field(field.first) == field.second;
                   });
        });
    }
    Registry for_gpu(std::string_view gpu) const
    {
        return filter([&](const Kernel& kernel) { return kernel.gpu() == gpu; });
    }

    // Kernels that an integration needs: `for_profile("flash")`, or by a number of CK's generators, `for_profile("2")`.
    Registry for_profile(std::string_view name) const
    {
        std::vector<std::string> known;
        bool found = false;
        for(const Entry& entry : entries_)
        {
            found = found || entry.kernel.find_profile(name).has_value();
            const tw_pack_op& about = entry.kernel.about();
            for(std::uint64_t i = 0; !found && tw_pack_has_profiles(entry.kernel.pack()) && i < about.profile_count; ++i)
                known.emplace_back(about.profiles[i].name);
        }
        if(!found)
            throw Error("unknown profile '" + std::string(name) + "'. Known to the ops of this registry: " +
                        detail::list_names(std::move(known)) + ".");
        return filter([&](const Kernel& kernel) { return kernel.in_profile(name); });
    }

    // Gives kernels another priority.
    template <typename Predicate>
    Registry& set_priority(int priority, Predicate&& predicate)
    {
        for(Entry& entry : entries_)
            if(predicate(entry.kernel))
                entry.priority = priority;
        plans_->clear();
        return *this;
    }
    Registry& set_strategy(Strategy strategy)
    {
        strategy_ = std::move(strategy);
        plans_->clear();
        return *this;
    }

    // Sorted by slug.
    const std::vector<Entry>& entries() const noexcept { return entries_; }
    std::size_t size() const noexcept { return entries_.size(); }

    std::optional<Kernel> find(std::string_view slug) const
    {
        const auto found = std::find_if(entries_.begin(), entries_.end(),
                                        [&](const Entry& entry) { return entry.kernel.slug() == slug; });
        return found == entries_.end() ? std::nullopt : std::optional<Kernel>(found->kernel);
    }

    // The kernels that support a problem: by priority, then in the order of the strategy.
    template <typename Problem>
    std::vector<Choice> ranked(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
        const tw_pack_op& about = problems_of(Problem::op);
        const auto values       = detail::complete(about, problem);
        return ranked_completed(about, &values);
    }

    template <typename Problem>
    std::optional<Kernel> best(const Problem& problem) const
    {
        const std::vector<Choice> choices = ranked(problem);
        return choices.empty() ? std::nullopt : std::optional<Kernel>(choices.front().kernel);
    }

    // As `Pack::plan`, over the kernels of all packs.
    template <typename Problem>
    std::shared_ptr<Plan> plan(const Problem& problem) const
    {
        static_assert(detail::IsProblem<Problem>::value, "not a problem: include <tilewright/OP.hpp> of its op");
        const tw_pack_op& about = problems_of(Problem::op);
        const auto values       = detail::complete(about, problem);
        const auto make         = [&] {
            std::vector<std::shared_ptr<void>> libraries(packs_.begin(), packs_.end());
            const auto kernels = [&] {
                std::vector<Kernel> own;
                for(const Entry& entry : entries_)
                    if(entry.kernel.op() == about.name)
                        own.push_back(entry.kernel);
                return own;
            };
            return detail::make_plan(about, &values, [&](const void* stage) { return ranked_completed(about, stage); },
                                     kernels, std::move(libraries));
        };
        return plans_->find(about, &values, make);
    }

    // One JSON object: counts of kernels by op, GPU and each value of each field, then all kernels with their fields.
    std::string to_json() const
    {
        std::map<std::string, std::map<std::string, std::size_t>> counts;
        std::string kernels;
        for(const Entry& entry : entries_)
        {
            const tw_pack_kernel& kernel = entry.kernel.entry();
            ++counts["op"][kernel.op];
            ++counts["gpu"][std::string(entry.kernel.gpu())];
            for(std::uint64_t i = 0; i < kernel.field_count; ++i)
                ++counts[std::string(kernel.op) + "." + kernel.fields[i].name][kernel.fields[i].value];
            kernels += (kernels.empty() ? "" : ",\n") + std::string("{\"slug\":") + quote(kernel.slug) +
                       ",\"op\":" + quote(kernel.op) + ",\"gpu\":" + quote(entry.kernel.gpu()) +
                       ",\"priority\":" + std::to_string(entry.priority) + ",\"config\":" + kernel.config + "}";
        }
        std::string listed;
        for(const auto& [field, values] : counts)
        {
            std::string row;
            for(const auto& [value, count] : values)
                row += (row.empty() ? "" : ",") + quote(value) + ":" + std::to_string(count);
            listed += (listed.empty() ? "" : ",\n") + quote(field) + ":{" + row + "}";
        }
        return "{\"count\":" + std::to_string(entries_.size()) + ",\n\"counts\":{\n" + listed + "},\n\"kernels\":[\n" +
               kernels + "]}\n";
    }

    private:
    void insert(const Entry& entry)
    {
        plans_->clear();
        const auto place = std::lower_bound(entries_.begin(), entries_.end(), entry, [](const Entry& a, const Entry& b) {
            return a.kernel.slug() < b.kernel.slug();
        });
        if(place == entries_.end() || place->kernel.slug() != entry.kernel.slug())
            entries_.insert(place, entry);
        else if(place->priority < entry.priority)
            *place = entry;
    }

    // The problems of an op. Kernels of it must be for one GPU, and have one declaration of problems.
    const tw_pack_op& problems_of(std::string_view op) const
    {
        std::vector<std::string> gpus, ops;
        const tw_pack_op* about = nullptr;
        for(const Entry& entry : entries_)
        {
            ops.emplace_back(entry.kernel.op());
            if(entry.kernel.op() != op)
                continue;
            const tw_pack_op& own = entry.kernel.about();
            if(about != nullptr && std::string_view(about->problem_digest) != own.problem_digest)
                throw Error("the packs have different declarations of problems of '" + std::string(op) +
                            "'. Write them with one version of Tilewright.");
            about = &own;
            gpus.emplace_back(entry.kernel.gpu());
        }
        if(about == nullptr)
            throw Error("the registry has no kernel of op '" + std::string(op) + "'. It has: " +
                        detail::list_names(std::move(ops)));
        if(std::any_of(gpus.begin(), gpus.end(), [&](const std::string& gpu) { return gpu != gpus.front(); }))
            throw Error("the registry has kernels for several GPUs: " + detail::list_names(std::move(gpus)) +
                        ". Use for_gpu first.");
        return *about;
    }

    std::vector<Choice> ranked_completed(const tw_pack_op& about, const void* problem) const
    {
        std::map<const tw_pack*, std::vector<const Entry*>> by_pack;
        std::map<const tw_pack_kernel*, int> priorities;
        for(const Entry& entry : entries_)
            if(entry.kernel.op() == about.name)
            {
                by_pack[entry.kernel.pack()].push_back(&entry);
                priorities[&entry.kernel.entry()] = entry.priority;
            }
        std::vector<Choice> choices;
        for(const std::shared_ptr<Pack>& pack : packs_)
        {
            const auto own = by_pack.find(pack->table());
            if(own == by_pack.end())
                continue;
            const auto listed = [&](const Kernel& kernel) { return priorities.count(&kernel.entry()) > 0; };
            for(const Choice& choice : pack->ranked_completed(pack->problems_of(about.name), problem, listed))
                choices.push_back(choice);
            by_pack.erase(own);
        }
        detail::sort_stable(choices, [](const Choice& a, const Choice& b) {
            return a.us.has_value() && b.us.has_value() ? *a.us < *b.us : a.us.has_value() && !b.us.has_value();
        });
        choices = strategy_(std::move(choices));
        detail::sort_stable(choices, [&](const Choice& a, const Choice& b) {
            return priorities[&a.kernel.entry()] > priorities[&b.kernel.entry()];
        });
        return choices;
    }

    static std::string quote(std::string_view text)
    {
        std::string made = "\"";
        for(const char letter : text)
            made += letter == '"' || letter == '\\' ? std::string{'\\', letter} : std::string{letter};
        return made + "\"";
    }

    std::vector<std::shared_ptr<Pack>> packs_;
    std::vector<Entry> entries_;
    Strategy strategy_ = by_estimate;
    std::shared_ptr<detail::PlanCache> plans_ = std::make_shared<detail::PlanCache>();
};

} // namespace tilewright

#endif
