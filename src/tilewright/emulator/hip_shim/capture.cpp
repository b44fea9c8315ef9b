// Stream capture, as HIP defines it in global mode: launches, fills and copies in the captured stream are recorded
// instead of executed, and calls that a graph cannot contain are refused. A graph does its work in the recorded order.
#include "graphs.hpp"

using namespace stand_in;

namespace {

hipError_t instantiate(void** executable, void* graph)
{
    if(executable == nullptr || graph == nullptr)
        return said(hipErrorInvalidValue);
    std::vector<Work> work = *graph_of(graph)->work;
    if(!order_nodes(*graph_of(graph), &work))
        return said(hipErrorInvalidValue);
    *executable = new Graph{std::make_shared<std::vector<Work>>(std::move(work)), {}};
    return hipSuccess;
}

hipError_t delete_graph(void* graph)
{
    delete graph_of(graph);
    return said(graph == nullptr ? hipErrorInvalidValue : hipSuccess);
}

} // namespace

TW_EXPORT hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode)
{
    if(reinterpret_cast<uintptr_t>(stream) <= 2) // the default streams cannot be captured
        return said(hipErrorStreamCaptureUnsupported);
    const hipError_t status = known(stream);
    if(status != hipSuccess)
        return status;
    if(capture.active.exchange(true))
        return said(hipErrorIllegalState);
    capture.stream   = stream;
    capture.streams  = {stream};
    capture.recorded = 0;
    capture.work.clear();
    capture.refused.clear();
    return hipSuccess;
}

TW_EXPORT hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph)
{
    if(graph == nullptr)
        return said(hipErrorInvalidValue);
    *graph = nullptr;
    if(!capture.active || capture.stream != stream)
        return said(hipErrorIllegalState);
    capture.active = false;
    if(!capture.refused.empty())
        return said(hipErrorStreamCaptureInvalidated);
    *graph = reinterpret_cast<hipGraph_t>(new Graph{std::make_shared<std::vector<Work>>(std::move(capture.work)), {}});
    return hipSuccess;
}

TW_EXPORT hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status)
{
    if(status == nullptr)
        return said(hipErrorInvalidValue);
    const bool captured = capture.active && capture.streams.count(stream) != 0;
    *status             = !captured                   ? hipStreamCaptureStatusNone
                          : capture.refused.empty() ? hipStreamCaptureStatusActive
                                                    : hipStreamCaptureStatusInvalidated;
    return hipSuccess;
}

TW_EXPORT hipError_t hipGraphDestroy(hipGraph_t graph) { return delete_graph(graph); }
TW_EXPORT hipError_t hipGraphExecDestroy(hipGraphExec_t graph) { return delete_graph(graph); }

TW_EXPORT hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraphNode_t*, char*, size_t)
{
    return instantiate(reinterpret_cast<void**>(executable), graph);
}

TW_EXPORT hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long)
{
    return instantiate(reinterpret_cast<void**>(executable), graph);
}

TW_EXPORT hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream)
{
    if(graph == nullptr)
        return said(hipErrorInvalidValue);
    if(!in_program) // without programs nothing is kept, see keep_launch
        return said(hipErrorNotSupported);
    if(const hipError_t status = known(stream); status != hipSuccess)
        return status;
    for(const Work& work : *graph_of(graph)->work)
        if(const hipError_t status = work(); status != hipSuccess)
            return said(status);
    return hipSuccess;
}

// For tests: the number of recorded launches, fills and copies of the last capture, and the calls that were refused.
TW_EXPORT size_t tilewright_captured() { return capture.recorded; }
TW_EXPORT const char* tilewright_refused() { return capture.refused.c_str(); }
