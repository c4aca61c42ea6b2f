#include "app/chat/memory_text.h"

#include <fmt/format.h>

#include "app/options.h"
#include "app/ui/table.h"

namespace hyb::app {

std::string memory_text(const MemoryPlan& plan) {
  Table table{.columns = {{""}, {"", Align::right}, {""}}, .rows = {}};
  const auto row = [&](const char* owner, std::size_t bytes, const std::string& note) {
    table.rows.push_back({owner, bytes_text(bytes), note});
  };
  row("weights", plan.weights, "");
  row("workspace", plan.workspace, "");
  row("keys and values", plan.pages_bytes, fmt::format("{} pages", plan.pages));
  row("recurrent state", plan.slots_bytes, fmt::format("{} slots", plan.slots));
  row("not used", plan.budget > plan.total() ? plan.budget - plan.total() : 0, "");
  row("budget", plan.budget, fmt::format("{} tokens a sequence", plan.length_max));
  return plain_text(table);
}

}  // namespace hyb::app
