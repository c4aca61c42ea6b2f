#pragma once

#include <vector>

#include "core/base/ids.h"
#include "core/text/merge_table.h"

namespace hyb {

/// Merges neighbours of `symbols` in place until none are left that the table merges: always the
/// pair of the lowest rank, the leftmost of equal ones. O(n log n) in time and 16 bytes a symbol at
/// most beside them. At most 2^31 - 2 symbols.
void merge_symbols(std::vector<TokenId>& symbols, const MergeTable& table);

}  // namespace hyb
