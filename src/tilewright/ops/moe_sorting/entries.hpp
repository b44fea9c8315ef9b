// Included before CK Tile's sorting: entries have the place of the expert in their upper 8 bits, as those of aiter.
#pragma once

#define CK_TILE_REFERENCE_MOE_SORTING_MOCK_ID 1
