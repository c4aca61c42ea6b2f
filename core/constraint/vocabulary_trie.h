#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace hyb {

/// The tokens of a vocabulary by their bytes, prepared once per tokenizer. Immutable.
class VocabularyTrie {
 public:
  struct Node {
    std::uint32_t end;    ///< the node after all that begin with this one's bytes
    std::uint32_t first;  ///< place in `tokens` of those that end here and after it
    std::uint16_t depth;
    std::uint8_t byte;
    std::uint8_t height;  ///< characters that begin below it, in the longest token
  };
  /// In depth-first order; a last node, which ends the tokens, has no byte.
  struct Part {
    std::vector<Node> nodes;
    std::vector<TokenId> tokens;
    std::size_t longest = 0;          ///< characters
    std::vector<std::uint32_t> mask;  ///< of all tokens
  };
  /// Most of a vocabulary are words of at most `text_max` ASCII letters and digits, and other text
  /// of at most `text_max` whole characters without quotes, backslashes and control characters:
  /// where any word or text is allowed, none of these is looked at.
  enum Kind : std::uint8_t { word, text, other };
  static constexpr int kinds = 2;  ///< that a place may allow all of

  /// `bytes`: of each token; empty: one that no text has (special tokens, holes). `ends`: the
  /// tokens that end an answer; their bytes do not count.
  VocabularyTrie(std::vector<std::string> bytes, std::span<const TokenId> ends);

  std::string_view bytes(TokenId token) const;
  bool is_end(TokenId token) const;
  std::span<const TokenId> ends() const { return ends_; }
  std::int32_t size() const { return static_cast<std::int32_t>(bytes_.size()); }
  std::size_t words() const { return (bytes_.size() + 31) / 32; }  ///< of a mask
  std::size_t longest_bytes() const { return longest_bytes_; }

  const Part& part(Kind kind) const { return parts_[kind]; }
  static constexpr std::size_t text_max = 16;

 private:
  Part build(std::vector<TokenId> tokens) const;

  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  std::array<Part, 3> parts_;
  std::size_t longest_bytes_ = 0;
};

}  // namespace hyb
