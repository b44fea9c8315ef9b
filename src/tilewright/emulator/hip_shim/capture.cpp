// Stream capture, as HIP defines it in global mode: launches and fills in the captured stream are recorded instead of
// executed, and calls that a graph cannot contain are refused. The recorded graph cannot be launched.
#include "state.hpp"

using namespace stand_in;

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
    capture.recorded = 0;
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
    *graph = reinterpret_cast<hipGraph_t>(new char);
    return hipSuccess;
}

TW_EXPORT hipError_t hipGraphDestroy(hipGraph_t graph)
{
    delete reinterpret_cast<char*>(graph);
    return hipSuccess;
}

// For tests: the number of recorded launches, fills and copies of the last capture, and the calls that were refused.
TW_EXPORT size_t tilewright_captured() { return capture.recorded; }
TW_EXPORT const char* tilewright_refused() { return capture.refused.c_str(); }
