#pragma once

#include <cstddef>
#include <string_view>

namespace hyb {

/// Limits what the steps of one part of a tokenizer.json may add to one text: 64 times the text and
/// 4 KiB. Steps multiply: twelve that replace "a" by ten of it make a terabyte of one letter. (What
/// real files add is far less: Unicode's forms make at most eleven times the text, bytes spelled as
/// characters twice.)
class GrowthLimit {
 public:
  /// `where` names the part in the error and outlives the limit.
  GrowthLimit(std::string_view where, std::size_t text_bytes);

  /// Call it before memory for a rewrite of `old_bytes` bytes as `new_bytes` is taken. What shrinks
  /// gives nothing back. Throws Error(model) that begins with `where`.
  void charge(std::size_t old_bytes, std::size_t new_bytes);

 private:
  std::string_view where_;
  std::size_t text_bytes_;
  std::size_t left_;
};

/// Throws Error(model) that begins with `where` for more than 256 steps in one part: each of them
/// reads the whole text.
void check_step_count(std::size_t steps, std::string_view where);

}  // namespace hyb
