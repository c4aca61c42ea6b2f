#pragma once

#include <cstddef>
#include <vector>

#include "core/memory/layout.h"
#include "core/memory/memory.h"
#include "core/memory/prefill_cost.h"
#include "core/memory/prefix_tree.h"

namespace hyb {

/// What a snapshot costs and saves where it stands, in bytes and in seconds of prefill.
class Appraisal {
 public:
  /// The layout outlives it.
  Appraisal(const MemoryLayout& layout, Precision precision, const PrefillCost& cost);

  void set_cost(const PrefillCost& cost) { cost_ = cost; }

  /// That go when the snapshot goes: its recurrent state, and the pages that no other snapshot
  /// needs. Pages are told by tokens, as if equal prefixes always shared them; of other snapshots
  /// two are asked: one that has the shared tokens, and the nearest above.
  std::size_t bytes(const Standing& standing) const;

  /// Of prefill that a request saves that resumes from it, against what it would resume from
  /// without it.
  double seconds(const Standing& standing) const;

  /// Expected seconds saved per byte; 0 when no byte goes with it.
  double worth(const Standing& standing, double use_probability) const;

  /// Every position of every snapshot can be resumed: one that a deeper one covers is good for
  /// nothing but to stay when that one goes.
  bool resumes_anywhere() const { return resumes_anywhere_; }

 private:
  std::size_t page_bytes(std::size_t group, const Standing& standing) const;

  const MemoryLayout* layout_;
  PrefillCost cost_;
  std::size_t state_bytes_;
  bool resumes_anywhere_;
  std::vector<bool> keeps_everything_;  ///< by group
};

}  // namespace hyb
