#pragma once

#include "core/text/guarded_text.h"

namespace hyb {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Unicode normalisation, in O(n log n) whatever the number of combining marks in a row. Marks that
/// compose over a join of guards take the stricter guard.
GuardedText normalize(const GuardedText& source, UnicodeForm form);

}  // namespace hyb
