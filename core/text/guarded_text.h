#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyb {

/// Which added tokens may be found over a byte of text; of several bytes the strictest counts.
enum class Guard : std::uint8_t {
  open,      ///< all of them
  thinking,  ///< thinking and tool markers, and those that are plain text
  closed,    ///< only those that are plain text
};

/// Text in well-formed UTF-8 with a guard for every byte.
struct GuardedText {
  std::string text;
  std::vector<Guard> guards;  // one per byte of text, or none: then `uniform` holds for all
  Guard uniform = Guard::open;

  Guard guard(std::size_t at) const { return guards.empty() ? uniform : guards[at]; }

  /// Appends to the end; guards that differ from the others' are kept per byte from then on.
  void append(std::string_view more, Guard guard);

  GuardedText slice(std::size_t begin, std::size_t end) const;
};

/// Rewrites a guarded text from left to right, guards going along.
class GuardedRewrite {
 public:
  explicit GuardedRewrite(const GuardedText& source);

  /// Copies the source's bytes [begin, end).
  void keep(std::size_t begin, std::size_t end);

  /// Puts `text` where the source had [begin, end): it is guarded as the strictest of those bytes
  /// (where there are none: as the text's most lenient guard, for the tokenizer itself adds it).
  void put(std::string_view text, std::size_t begin, std::size_t end);

  GuardedText take() { return std::move(out_); }

 private:
  const GuardedText& source_;
  GuardedText out_;
};

/// A copy in which every ill-formed sequence is U+FFFD.
GuardedText well_formed(const GuardedText& source);

}  // namespace hyb
