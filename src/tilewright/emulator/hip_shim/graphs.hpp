// Graphs: the work of a captured stream, or of nodes that a program adds one by one.
#ifndef TILEWRIGHT_STAND_IN_GRAPHS_HPP
#define TILEWRIGHT_STAND_IN_GRAPHS_HPP

#include "state.hpp"

#include <memory>

namespace stand_in {

struct Node
{
    hipGraphNodeType type;
    Work work;
    std::vector<const Node*> needs; // the nodes before it
};

// What handles of graphs and of executable graphs point to. An executable graph has no nodes.
struct Graph
{
    std::shared_ptr<const std::vector<Work>> work;
    std::vector<std::shared_ptr<Node>> nodes;
};

inline Graph* graph_of(void* handle) { return static_cast<Graph*>(handle); }

// Appends the work of a graph's nodes in an order that fits their dependencies; false if there is none (graph_nodes.cpp).
bool order_nodes(const Graph& graph, std::vector<Work>* work);

} // namespace stand_in

#endif
