#include "core/engine/entry_policy.h"

#include <algorithm>

namespace hyb {

/// Losses by drafts do not count: their own policy limits them, and having no entries saves none.
void EntryPolicy::ran(const Ran& step) {
  seconds_ += step.seconds;
  entry_seconds_ += step.entry_seconds;
  if (is_trial_) {
    lost_seconds_ += step.lost_seconds;
    if (step.is_uniform) ++steps_;
    if (sequences_ < trial_sequences && steps_ < trial_steps) return;
  }
  if (entry_seconds_ + std::min(0.0, lost_seconds_) <= loss_share * seconds_) {
    *this = {};
  } else {
    is_trial_ = false;
  }
}

}  // namespace hyb
