// How long a plan takes on the device, measured with events of HIP.
#ifndef TILEWRIGHT_TIMING_HPP
#define TILEWRIGHT_TIMING_HPP

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan.hpp"

namespace tilewright {

struct TimingOptions
{
    int warmup = 3; // runs before the first that counts
    int runs   = 20;
    RunOptions run;
};

// Microseconds of each run, in order, of all stages together.
struct Timing
{
    std::vector<double> us;

    double least() const { return *std::min_element(us.begin(), us.end()); }
    double mean() const { return std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size()); }
    double median() const
    {
        std::vector<double> sorted = us;
        std::sort(sorted.begin(), sorted.end());
        const std::size_t middle = sorted.size() / 2;
        return sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    }
};

namespace detail {

// An event of HIP.
class Event
{
    public:
    explicit Event(const tw_pack_device& device) : device_(device) { require(device.create_event(&event_), "create"); }
    Event(const Event&)            = delete;
    Event& operator=(const Event&) = delete;
    ~Event() { device_.destroy_event(event_); }

    void record(void* stream) { require(device_.record_event(event_, stream), "record"); }
    double measure_since(const Event& start)
    {
        float ms = 0;
        require(device_.wait_for_event(event_), "wait for");
        require(device_.measure(&ms, start.event_, event_), "measure");
        return 1e3 * static_cast<double>(ms);
    }

    private:
    void require(int status, const char* action) const
    {
        if(status != 0)
            throw Error(std::string("cannot ") + action + " an event: " + device_.describe(status));
    }

    const tw_pack_device& device_;
    void* event_ = nullptr;
};

} // namespace detail

// Run a plan several times on a stream, and measure each run. Waits for the last one.
inline Timing time(Plan& plan, const std::vector<const void*>& addresses, void* stream,
                   const TimingOptions& options = {})
{
    if(options.runs < 1)
        throw Error("runs is " + std::to_string(options.runs) + ", must be at least 1");
    const tw_pack_device& device = *tw_pack_device_of(plan.stages().front().kernel.pack());
    for(int i = 0; i < options.warmup; ++i)
        plan.run(addresses, stream, options.run);
    Timing timing;
    detail::Event start(device), stop(device);
    for(int i = 0; i < options.runs; ++i)
    {
        start.record(stream);
        plan.run(addresses, stream, options.run);
        stop.record(stream);
        timing.us.push_back(stop.measure_since(start));
    }
    return timing;
}

} // namespace tilewright

#endif
