#include "tests/sim/step_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace hyb::sim {
namespace {

bool goes_on(const Span& before, const Span& span) {
  const auto end = before.position + static_cast<std::int32_t>(before.tokens.size());
  return span.position == end && span.read_slot == before.write_slot &&
         std::equal(span.tables.begin(), span.tables.end(), before.tables.begin(),
                    before.tables.end());
}

using Page = std::pair<std::size_t, PageId>;  // group, page

std::vector<Page> pages_of(const Span& span, std::int32_t from, std::int32_t end) {
  std::vector<Page> pages;
  for (std::size_t group = 0; group < span.tables.size(); ++group) {
    for (std::int32_t i = from; i < end; ++i) {
      const PageId page = span.tables[group][static_cast<std::size_t>(i)];
      if (page != no_page) pages.emplace_back(group, page);
    }
  }
  return pages;
}

}  // namespace

std::vector<std::size_t> first_spans(const Step& step) {
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    first.push_back(i > 0 && goes_on(step.spans[i - 1], step.spans[i]) ? first.back() : i);
  }
  return first;
}

const char* broken_rule(const Step& step, std::int32_t page_tokens) {
  const std::vector<std::size_t> first = first_spans(step);
  const std::int32_t size = std::max(page_tokens, 1);
  std::set<SlotId> slots;
  std::map<Page, std::size_t> pages;  // by whose first span
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const Span& span = step.spans[i];
    if (span.write_slot != no_slot && !slots.insert(span.write_slot).second) {
      return "write slots are distinct";
    }
    const auto last = span.position + static_cast<std::int32_t>(span.tokens.size()) - 1;
    for (const Page& page : pages_of(span, span.position / size, last / size + 1)) {
      if (pages.emplace(page, first[i]).first->second != first[i]) {
        return "written pages are distinct";
      }
    }
  }
  for (std::size_t i = 0; i < step.spans.size(); ++i) {
    const Span& span = step.spans[i];
    if (span.read_slot != span.write_slot && first[i] == i && slots.contains(span.read_slot)) {
      return "a slot that one span reads no other writes";
    }
    // A partly filled page may be shared with its writer, who writes behind what this one reads.
    for (const Page& page : pages_of(span, 0, span.position / size)) {
      const auto found = pages.find(page);
      if (found != pages.end() && found->second != first[i]) return "a full page is not written";
    }
  }
  return nullptr;
}

}  // namespace hyb::sim
