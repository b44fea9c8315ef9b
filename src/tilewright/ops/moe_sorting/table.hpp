// The table of CK Tile's sorting, tokens × experts in LDS, for any experts: those outside of it, and equal ones.
#ifndef TILEWRIGHT_MOE_SORTING_TABLE_HPP
#define TILEWRIGHT_MOE_SORTING_TABLE_HPP

#include "ck_tile/core.hpp"

namespace tilewright_moe_sorting {

// Lanes that have the same expert of the same token use the same cell: atomics count both, and keep the last.
struct Cell
{
    ck_tile::index_t* address;

    CK_TILE_DEVICE operator ck_tile::index_t() const { return *address; }

    CK_TILE_DEVICE void operator++(int) const
    {
        __hip_atomic_fetch_add(address, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }

    CK_TILE_DEVICE void operator=(ck_tile::index_t value) const
    {
        if(value == 0)
            *address = 0;
        else
            __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
};

// Replaces `simple_smem_indexer`. Rows of tokens have one more column than there are experts, which CK Tile neither
// counts nor places: it takes those that do not exist.
struct Table
{
    ck_tile::index_t* words;
    ck_tile::index_t columns = 0;

    CK_TILE_DEVICE explicit Table(ck_tile::index_t* words_, ck_tile::index_t columns_ = 0)
        : words(words_), columns(columns_)
    {
    }

    CK_TILE_DEVICE Cell operator()(ck_tile::index_t token, ck_tile::index_t expert) const
    {
        const auto last = static_cast<uint32_t>(columns - 1), given = static_cast<uint32_t>(expert);
        return Cell{words + token * columns + static_cast<ck_tile::index_t>(given < last ? given : last)};
    }

    CK_TILE_DEVICE ck_tile::index_t& operator()(ck_tile::index_t index) const { return words[index]; }
};

} // namespace tilewright_moe_sorting

#endif
