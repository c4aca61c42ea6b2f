#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/growth_limit.h"

namespace hyb {

/// Says which added tokens may be recognised in a byte of text; over several bytes the strictest
/// holds.
enum class Guard : std::uint8_t {
  open,      ///< all of them
  thinking,  ///< thinking and tool-call markers, and plain text
  closed,    ///< only plain text, such as runs of spaces
};

/// Text in well-formed UTF-8 with a guard for every byte.
struct GuardedText {
  std::string text;
  std::vector<Guard> guards;  // one per byte of text; empty: `uniform` holds for all
  Guard uniform = Guard::open;

  Guard guard(std::size_t at) const { return guards.empty() ? uniform : guards[at]; }

  /// Guards are kept per byte once they differ.
  void append(std::string_view more, Guard guard);

  GuardedText slice(std::size_t begin, std::size_t end) const;
};

/// Rewrites a guarded text from left to right together with its guards.
class GuardedRewrite {
 public:
  /// `growth`, where there is one, is charged with what put() adds.
  explicit GuardedRewrite(const GuardedText& source, GrowthLimit* growth = nullptr);

  /// Copies the source's bytes [begin, end).
  void keep(std::size_t begin, std::size_t end);

  /// Replaces the source's bytes [begin, end) by `text`, which takes the strictest of their guards
  /// (Guard::open when there are none: the tokenizer itself inserts it).
  void put(std::string_view text, std::size_t begin, std::size_t end);

  GuardedText take() { return std::move(out_); }

 private:
  const GuardedText& source_;
  GrowthLimit* growth_;
  GuardedText out_;
};

/// A copy in which every ill-formed sequence is replaced by U+FFFD.
GuardedText well_formed(const GuardedText& source);

}  // namespace hyb
