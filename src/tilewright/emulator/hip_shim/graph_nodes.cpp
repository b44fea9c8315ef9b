// Graphs that a program makes of single nodes. Instantiating a graph puts its nodes in an order that fits their
// dependencies.
#include "graphs.hpp"
#include "kernels.hpp"
#include "memory.hpp"

#include <algorithm>

using namespace stand_in;

namespace {

hipError_t add_node(hipGraphNode_t* handle, hipGraph_t graph, const hipGraphNode_t* needs, size_t count,
                    hipGraphNodeType type, Work work)
{
    if(handle == nullptr || graph == nullptr || (count > 0 && needs == nullptr))
        return said(hipErrorInvalidValue);
    auto node = std::make_shared<Node>(Node{type, std::move(work), {}});
    for(size_t at = 0; at < count; ++at)
        node->needs.push_back(reinterpret_cast<const Node*>(needs[at]));
    *handle = reinterpret_cast<hipGraphNode_t>(node.get());
    graph_of(graph)->nodes.push_back(std::move(node));
    return hipSuccess;
}

bool has_node(const Graph& graph, const Node* wanted)
{
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [=](const auto& node) { return node.get() == wanted; });
}

} // namespace

bool stand_in::order_nodes(const Graph& graph, std::vector<Work>* work)
{
    std::unordered_set<const Node*> done;
    for(bool progress = true; progress && done.size() < graph.nodes.size();)
    {
        progress = false;
        for(const auto& node : graph.nodes)
        {
            const bool ready = std::all_of(node->needs.begin(), node->needs.end(),
                                           [&](const Node* need) { return done.count(need) != 0; });
            if(!ready || !done.insert(node.get()).second)
                continue;
            work->push_back(node->work);
            progress = true;
        }
    }
    return done.size() == graph.nodes.size();
}

TW_EXPORT hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags)
{
    if(graph == nullptr || flags != 0)
        return said(hipErrorInvalidValue);
    *graph = reinterpret_cast<hipGraph_t>(new Graph{std::make_shared<std::vector<Work>>(), {}});
    return hipSuccess;
}

TW_EXPORT hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                          size_t count)
{
    return add_node(node, graph, needs, count, hipGraphNodeTypeEmpty, [] { return hipSuccess; });
}

TW_EXPORT hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                           size_t count, const hipKernelNodeParams* given)
{
    if(given == nullptr || (given->kernelParams == nullptr) == (given->extra == nullptr))
        return said(hipErrorInvalidValue);
    if(given->extra != nullptr)
        return static_cast<hipError_t>(tilewright_missing("hipGraphAddKernelNode with packed arguments"));
    Function function;
    if(!find_stub(given->func, &function) &&
       !find_function(reinterpret_cast<hipFunction_t>(given->func), &function))
        return said(hipErrorInvalidDeviceFunction);
    LaunchRequest request =
        request_of(current_device, function, given->gridDim, given->blockDim, given->sharedMemBytes);
    request.arguments = given->kernelParams;
    Work work;
    if(const hipError_t status = make_launch(request, &work); status != hipSuccess)
        return status;
    return add_node(node, graph, needs, count, hipGraphNodeTypeKernel, std::move(work));
}

TW_EXPORT hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                             size_t count, void* target, const void* source, size_t bytes,
                                             hipMemcpyKind direction)
{
    return add_node(node, graph, needs, count, hipGraphNodeTypeMemcpy,
                    [=] { return copy_bytes(target, source, bytes, direction); });
}

TW_EXPORT hipError_t hipGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                           size_t count, const hipMemcpy3DParms* given)
{
    if(given == nullptr)
        return said(hipErrorInvalidValue);
    return add_node(node, graph, needs, count, hipGraphNodeTypeMemcpy,
                    [asked = *given] { return hipMemcpy3DAsync(&asked, nullptr); });
}

TW_EXPORT hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                           size_t count, const hipMemsetParams* given)
{
    if(given == nullptr || (given->elementSize != 1 && given->elementSize != 2 && given->elementSize != 4))
        return said(hipErrorInvalidValue);
    return add_node(node, graph, needs, count, hipGraphNodeTypeMemset, [asked = *given] {
        hipError_t status = hipSuccess;
        for(size_t row = 0; row < std::max<size_t>(asked.height, 1) && status == hipSuccess; ++row)
        {
            char* const place = static_cast<char*>(asked.dst) + row * asked.pitch;
            const auto start  = reinterpret_cast<hipDeviceptr_t>(place);
            status = asked.elementSize == 1   ? hipMemsetD8(start, static_cast<unsigned char>(asked.value), asked.width)
                     : asked.elementSize == 2 ? hipMemsetD16(start, static_cast<unsigned short>(asked.value), asked.width)
                                              : hipMemsetD32(start, static_cast<int>(asked.value), asked.width);
        }
        return status;
    });
}

TW_EXPORT hipError_t hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                         size_t count, const hipHostNodeParams* given)
{
    if(given == nullptr || given->fn == nullptr)
        return said(hipErrorInvalidValue);
    return add_node(node, graph, needs, count, hipGraphNodeTypeHost,
                    [asked = *given] { return asked.fn(asked.userData), hipSuccess; });
}

TW_EXPORT hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* needs,
                                               size_t count, hipGraph_t child)
{
    if(child == nullptr)
        return said(hipErrorInvalidValue);
    std::vector<Work> work = *graph_of(child)->work;
    if(!order_nodes(*graph_of(child), &work))
        return said(hipErrorInvalidValue);
    return add_node(node, graph, needs, count, hipGraphNodeTypeGraph, [work = std::move(work)] {
        for(const Work& each : work)
            if(const hipError_t status = each(); status != hipSuccess)
                return status;
        return hipSuccess;
    });
}

TW_EXPORT hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                                             size_t count)
{
    if(graph == nullptr || (count > 0 && (from == nullptr || to == nullptr)))
        return said(hipErrorInvalidValue);
    for(size_t at = 0; at < count; ++at)
    {
        const auto* const first = reinterpret_cast<const Node*>(from[at]);
        auto* const second      = reinterpret_cast<Node*>(to[at]);
        if(!has_node(*graph_of(graph), first) || !has_node(*graph_of(graph), second))
            return said(hipErrorInvalidValue);
        second->needs.push_back(first);
    }
    return hipSuccess;
}

TW_EXPORT hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count)
{
    if(graph == nullptr || count == nullptr)
        return said(hipErrorInvalidValue);
    const auto& own = graph_of(graph)->nodes;
    if(nodes != nullptr)
        for(size_t at = 0; at < std::min(*count, own.size()); ++at)
            nodes[at] = reinterpret_cast<hipGraphNode_t>(own[at].get());
    *count = nodes == nullptr ? own.size() : std::min(*count, own.size());
    return hipSuccess;
}

TW_EXPORT hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type)
{
    if(node == nullptr || type == nullptr)
        return said(hipErrorInvalidValue);
    *type = reinterpret_cast<const Node*>(node)->type;
    return hipSuccess;
}
