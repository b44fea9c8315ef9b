// Export the kernels of a registry as JSON: counts by op, GPU and field, then every kernel with its config.
#include "tensors.hpp"

int main(int, char** words)
{
    const tilewright::Registry registry(tilewright::Pack::open(words[1], "gfx942"));
    const auto small = registry.filter("gemm", {{"dtype_a", "fp16"}, {"variant", "standard"}, {"pad_m", "true"}});
    const std::string json = small.to_json();
    std::cout << json;
    return json.find("\"count\":" + std::to_string(small.size())) != std::string::npos && small.size() > 0 ? 0 : 1;
}
