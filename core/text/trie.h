#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hyb {

/// A set of byte strings, each with a number, to be walked byte by byte.
class Trie {
 public:
  using Node = std::int32_t;
  static constexpr Node root = 0;
  static constexpr Node none = -1;

  Trie();

  /// Gives `key`, which is not empty, the value >= 0; the first one given stays.
  void add(std::string_view key, std::int32_t value);

  Node next(Node node, char byte) const;
  std::int32_t value(Node node) const {
    return nodes_[static_cast<std::size_t>(node)].value;
  }  ///< -1: no key ends here

 private:
  struct Edge {
    unsigned char byte;
    Node node;
  };
  struct Place {
    std::int32_t value = -1;
    std::vector<Edge> edges;
  };

  std::array<Node, 256> first_;  // the root's edges: nearly every walk ends there
  std::vector<Place> nodes_;
};

}  // namespace hyb
