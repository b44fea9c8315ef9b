// Memory for `malloc` in kernels. AMD's device libraries (ockl, dm.cl) manage small blocks in slabs of 2 MiB themselves,
// and request slabs and large blocks from the host. All of it comes from one allocation of the emulated device.
#ifndef TILEWRIGHT_STAND_IN_DEVICE_HEAP_HPP
#define TILEWRIGHT_STAND_IN_DEVICE_HEAP_HPP

#include <cstdint>
#include <iterator>
#include <map>

namespace stand_in {

class DeviceHeap
{
public:
    DeviceHeap(uint64_t start, uint64_t bytes) : holes_{{start, bytes}} {}

    // The address of a new block; 0 if there is no room.
    uint64_t allocate(uint64_t bytes)
    {
        const uint64_t alignment = bytes == SLAB ? SLAB : PAGE;
        const uint64_t whole     = (bytes + PAGE - 1) / PAGE * PAGE;
        for(auto hole = holes_.begin(); bytes != 0 && whole >= bytes && hole != holes_.end(); ++hole)
        {
            const uint64_t end   = hole->first + hole->second;
            const uint64_t start = (hole->first + alignment - 1) / alignment * alignment;
            if(start > end || whole > end - start)
                continue;
            const uint64_t before = start - hole->first;
            if(end > start + whole)
                holes_[start + whole] = end - start - whole;
            if(before != 0)
                hole->second = before;
            else
                holes_.erase(hole);
            blocks_[start] = whole;
            return start;
        }
        return 0;
    }

    // Frees a block; an address that is none is ignored, as AMD's host does.
    void release(uint64_t address)
    {
        const auto block = blocks_.find(address);
        if(block == blocks_.end())
            return;
        auto hole = holes_.emplace(block->first, block->second).first;
        blocks_.erase(block);
        const auto after = std::next(hole);
        if(after != holes_.end() && hole->first + hole->second == after->first)
        {
            hole->second += after->second;
            holes_.erase(after);
        }
        if(hole == holes_.begin())
            return;
        const auto before = std::prev(hole);
        if(before->first + before->second == hole->first)
        {
            before->second += hole->second;
            holes_.erase(hole);
        }
    }

private:
    static constexpr uint64_t SLAB = uint64_t(1) << 21; // the library finds a slab by clearing the address's lower bits
    static constexpr uint64_t PAGE = 4096;              // blocks at multiples of it are not in a slab
    std::map<uint64_t, uint64_t> holes_, blocks_;       // start -> bytes
};

} // namespace stand_in

#endif
