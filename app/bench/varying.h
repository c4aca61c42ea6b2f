#pragma once

#include <algorithm>

namespace hyb::app {

/// Whether `value(row)` is not the same for all rows: then a table or a plot has to say it.
template <typename Rows, typename Value>
bool varies(const Rows& rows, Value&& value) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return value(row) != value(rows.front()); });
}

/// Whether rows were measured in several modes of --graphs.
template <typename Rows>
bool varies_in_graphs(const Rows& rows) {
  return varies(rows, [](const auto& row) { return row.test.graphs; });
}

}  // namespace hyb::app
