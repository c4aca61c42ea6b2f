#include "core/text/trie.h"

#include <algorithm>

namespace hyb {

Trie::Trie() : nodes_(1) { first_.fill(none); }

void Trie::add(std::string_view key, std::int32_t value) {
  Node node = root;
  for (const char byte : key) {
    Node following = next(node, byte);
    if (following == none) {
      following = static_cast<Node>(nodes_.size());
      nodes_.emplace_back();
      const auto plain = static_cast<unsigned char>(byte);
      if (node == root) first_[plain] = following;
      auto& edges = nodes_[static_cast<std::size_t>(node)].edges;
      const auto place = std::lower_bound(edges.begin(), edges.end(), plain,
                                          [](Edge edge, unsigned char b) { return edge.byte < b; });
      edges.insert(place, {plain, following});
    }
    node = following;
  }
  auto& place = nodes_[static_cast<std::size_t>(node)];
  if (place.value < 0) place.value = value;
}

Trie::Node Trie::next(Node node, char byte) const {
  const auto plain = static_cast<unsigned char>(byte);
  if (node == root) return first_[plain];
  const auto& edges = nodes_[static_cast<std::size_t>(node)].edges;
  const auto place = std::lower_bound(edges.begin(), edges.end(), plain,
                                      [](Edge edge, unsigned char b) { return edge.byte < b; });
  return place != edges.end() && place->byte == plain ? place->node : none;
}

}  // namespace hyb
