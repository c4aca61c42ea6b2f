#include "core/engine/stop_strings.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

std::size_t at(char byte) { return static_cast<unsigned char>(byte); }

}  // namespace

StopStrings::StopStrings(std::span<const std::string> strings) {
  if (strings.empty()) return;
  if (strings.size() > strings_max) {
    throw Error(ErrorKind::usage, fmt::format("stop strings: at most {} are allowed: {}",
                                              strings_max, strings.size()));
  }
  std::size_t bytes = 0;
  for (const std::string& string : strings) {
    bytes += string.size();
    if (string.empty()) throw Error(ErrorKind::usage, "stop strings: one of them is empty");
    if (!is_well_formed(string)) {
      throw Error(ErrorKind::usage, "stop strings: one of them is not valid UTF-8");
    }
  }
  if (bytes > bytes_max) {
    throw Error(
        ErrorKind::usage,
        fmt::format("stop strings: at most {} bytes together are allowed: {}", bytes_max, bytes));
  }
  nodes_.resize(1);
  from_root_.resize(256, 0);
  for (const std::string& string : strings) insert(string);
  link();
}

void StopStrings::insert(std::string_view string) {
  std::int32_t node = 0;
  for (const char byte : string) {
    std::int32_t below = child(node, byte);
    if (below < 0) {
      below = static_cast<std::int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<std::size_t>(node)];
      Node added;
      added.next_sibling = std::exchange(parent.first_child, below);
      added.depth = parent.depth + 1;
      added.byte = byte;
      nodes_.push_back(added);
      if (node == 0) from_root_[at(byte)] = below;
    }
    node = below;
  }
  nodes_[static_cast<std::size_t>(node)].match = static_cast<std::int32_t>(string.size());
}

/// Breadth first: a node's fallback is nearer to the root than the node.
void StopStrings::link() {
  std::vector<std::int32_t> queue = {0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const Node node = nodes_[static_cast<std::size_t>(queue[i])];
    for (std::int32_t below = node.first_child; below >= 0;) {
      Node& lower = nodes_[static_cast<std::size_t>(below)];
      lower.fallback = queue[i] == 0 ? 0 : next(node.fallback, lower.byte);
      const Node& suffix = nodes_[static_cast<std::size_t>(lower.fallback)];
      if (lower.match == 0) lower.match = suffix.match;
      queue.push_back(below);
      below = lower.next_sibling;
    }
  }
}

std::int32_t StopStrings::child(std::int32_t node, char byte) const {
  if (node == 0) {
    const std::int32_t found = from_root_[at(byte)];
    return found == 0 ? -1 : found;
  }
  std::int32_t below = nodes_[static_cast<std::size_t>(node)].first_child;
  while (below >= 0 && nodes_[static_cast<std::size_t>(below)].byte != byte) {
    below = nodes_[static_cast<std::size_t>(below)].next_sibling;
  }
  return below;
}

std::int32_t StopStrings::next(std::int32_t node, char byte) const {
  for (;;) {
    const std::int32_t below = child(node, byte);
    if (below >= 0) return below;
    if (node == 0) return 0;
    node = nodes_[static_cast<std::size_t>(node)].fallback;
  }
}

StopSearch::StopSearch(const StopStrings& strings, const AnswerStart& start) : strings_(&strings) {
  if (!strings.empty() && start.may_think) scanner_.emplace(start);
}

std::string StopSearch::push(std::string_view text) {
  return scanner_ ? search_said(scanner_->push(text)) : search(text);
}

std::string StopSearch::search_said(const std::vector<AnswerScanner::Piece>& pieces) {
  std::string certain;
  for (const auto& [text, part] : pieces) {
    if (found_) break;
    const bool is_said = part == AnswerPart::answer || part == AnswerPart::call;
    certain += is_said ? search(text) : take_held() + text;
  }
  return certain;
}

std::string StopSearch::search(std::string_view text) {
  if (found_) return {};
  if (strings_->empty()) return std::string(text);
  held_.append(text);
  for (std::size_t i = held_.size() - text.size(); i < held_.size(); ++i) {
    node_ = strings_->next(node_, held_[i]);
    const auto match =
        static_cast<std::size_t>(strings_->nodes_[static_cast<std::size_t>(node_)].match);
    if (match == 0) continue;
    found_ = true;
    held_.resize(i + 1 - match);
    return std::exchange(held_, {});
  }
  const auto kept =
      static_cast<std::size_t>(strings_->nodes_[static_cast<std::size_t>(node_)].depth);
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopSearch::flush() {
  std::string text = scanner_ ? search_said(scanner_->finish()) : std::string();
  return text + take_held();
}

std::string StopSearch::take_held() {
  node_ = 0;
  return std::exchange(held_, {});
}

}  // namespace hyb
