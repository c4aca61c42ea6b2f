#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/answer_scanner.h"

namespace hyb {

/// A set of stop strings, searched all at once in time linear in the text (Aho and Corasick, 1975).
/// Immutable; several searches may use one set.
class StopStrings {
 public:
  static constexpr std::size_t strings_max = 64;
  static constexpr std::size_t bytes_max = 16384;  ///< of all strings together

  StopStrings() = default;

  /// Throws Error(usage) when a string is empty or not UTF-8, or when there are too many.
  explicit StopStrings(std::span<const std::string> strings);

  bool empty() const { return nodes_.empty(); }

 private:
  friend class StopSearch;

  /// The strings as a tree of bytes: a node is a prefix of one or more of them.
  struct Node {
    std::int32_t first_child = -1, next_sibling = -1;
    std::int32_t fallback = 0;  ///< the longest proper suffix of this prefix that is a prefix too
    std::int32_t depth = 0;     ///< bytes
    std::int32_t match = 0;     ///< bytes of the longest stop string that ends here; 0: none
    char byte = 0;
  };

  void insert(std::string_view string);
  void link();
  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t next(std::int32_t node, char byte) const;

  std::vector<Node> nodes_;              ///< the root first; none where there are no strings
  std::vector<std::int32_t> from_root_;  ///< by first byte; 0: none
};

/// Finds the stop string that is complete first; of those complete at the same byte the longest
/// one. How the text is split into pushes makes no difference. None is found in thoughts or
/// markers, and none goes on where a part of the answer ends.
class StopSearch {
 public:
  /// The strings outlive the search.
  explicit StopSearch(const StopStrings& strings, const AnswerStart& start = {});

  /// Takes more text, in whole characters, and returns what is certainly before any stop string.
  /// After a stop string was found all text is dropped.
  std::string push(std::string_view text);

  bool found() const { return found_; }

  /// At the end of the text: returns what was held back.
  std::string flush();

 private:
  std::string search(std::string_view text);
  std::string search_said(const std::vector<AnswerScanner::Piece>& pieces);
  std::string take_held();

  const StopStrings* strings_;
  std::optional<AnswerScanner> scanner_;  ///< where some of the text is not searched
  std::int32_t node_ = 0;
  std::string held_;  ///< always the bytes of node_
  bool found_ = false;
};

}  // namespace hyb
