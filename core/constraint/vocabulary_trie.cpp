#include "core/constraint/vocabulary_trie.h"

#include <algorithm>
#include <cctype>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

constexpr std::size_t token_bytes_max = 4096;

VocabularyTrie::Kind kind_of(std::string_view bytes) {
  if (!is_well_formed(bytes)) return VocabularyTrie::other;
  std::size_t count = 0;
  bool is_word = true;
  for (const char c : bytes) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' || c == 0x7F)
      return VocabularyTrie::other;
    count += (c & 0xC0) != 0x80;
    is_word = is_word && std::isalnum(static_cast<unsigned char>(c));
  }
  if (count > VocabularyTrie::text_max) return VocabularyTrie::other;
  return is_word ? VocabularyTrie::word : VocabularyTrie::text;
}

}  // namespace

VocabularyTrie::VocabularyTrie(std::vector<std::string> bytes, std::span<const TokenId> ends)
    : bytes_(std::move(bytes)), ends_(ends.begin(), ends.end()) {
  for (const TokenId token : ends_) {
    require(static_cast<std::size_t>(token) < bytes_.size(),
            "an end of answers is a token of the vocabulary");
    bytes_[static_cast<std::size_t>(token)].clear();
  }
  std::array<std::vector<TokenId>, 3> tokens;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i].size() > token_bytes_max) bytes_[i].clear();
    if (bytes_[i].empty()) continue;
    longest_bytes_ = std::max(longest_bytes_, bytes_[i].size());
    tokens[kind_of(bytes_[i])].push_back(static_cast<TokenId>(i));
  }
  for (std::size_t kind = 0; kind < parts_.size(); ++kind)
    parts_[kind] = build(std::move(tokens[kind]));
}

std::string_view VocabularyTrie::bytes(TokenId token) const {
  const auto i = static_cast<std::size_t>(token);
  return i < bytes_.size() ? bytes_[i] : std::string_view();
}

bool VocabularyTrie::is_end(TokenId token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

VocabularyTrie::Part VocabularyTrie::build(std::vector<TokenId> tokens) const {
  std::sort(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  Part part;
  std::vector<Node>& nodes = part.nodes;
  std::vector<std::size_t> path;  // nodes of the bytes of the token before
  const auto close_to = [&](std::size_t depth) {
    while (path.size() > depth) {
      Node& node = nodes[path.back()];
      node.end = static_cast<std::uint32_t>(nodes.size());
      path.pop_back();
      const std::size_t below = node.height + ((node.byte & 0xC0) != 0x80 ? 1U : 0U);
      const auto height = static_cast<std::uint8_t>(std::min<std::size_t>(below, 255));
      if (path.empty())
        part.longest = std::max(part.longest, below);
      else
        nodes[path.back()].height = std::max(nodes[path.back()].height, height);
    }
  };
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    const std::string_view token = bytes(tokens[k]);
    std::size_t shared = 0;
    while (shared < path.size() && shared < token.size() &&
           nodes[path[shared]].byte == static_cast<std::uint8_t>(token[shared]))
      ++shared;
    close_to(shared);
    for (std::size_t i = shared; i < token.size(); ++i) {
      path.push_back(nodes.size());
      nodes.push_back({0, static_cast<std::uint32_t>(k), static_cast<std::uint16_t>(i),
                       static_cast<std::uint8_t>(token[i]), 0});
    }
  }
  close_to(0);
  part.mask.resize(words());
  for (const TokenId id : tokens) {
    const auto bit = static_cast<std::uint32_t>(id);
    part.mask[bit / 32] |= 1U << (bit % 32);
  }
  nodes.push_back({0, static_cast<std::uint32_t>(tokens.size()), 0, 0, 0});
  part.tokens = std::move(tokens);
  return part;
}

}  // namespace hyb
