#pragma once

#include "core/memory/kind.h"

namespace hyb::testing {

// Short enough for keys of a few pages to pass a window's end and a chunk's, none of which is a
// page's (of 4 tokens).

inline const FullAttention full;
inline const SlidingWindow window(9);
inline const ChunkedAttention chunked(10);

}  // namespace hyb::testing
