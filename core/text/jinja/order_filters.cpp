// Filters that compare items with one another (filters.h).
#include <algorithm>

#include "core/text/jinja/access.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"

namespace hyb::jinja {
namespace {

struct Keyed {
  Value key;
  Value item;
};

Value folded(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  return Value(lower(runtime, value.text()));
}

void sort_by_key(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  // A stable sort in either direction, as sorted(reverse=True) is.
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(runtime, b.key, a.key) : less(runtime, a.key, b.key);
  });
}

/// The keys that "name,other.name" selects, as a list that compares in order.
Value sort_key(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  List& keys = runtime.new_list();
  if (!attribute.is_text()) {
    runtime.push(keys, folded(runtime, get_path(runtime, item, attribute), case_sensitive));
    return Value(Kind::list, &keys);
  }
  const Text comma = runtime.text(",");
  for (const Value& path : split(runtime, attribute.text(), {.separator = comma}).items) {
    runtime.push(keys, folded(runtime, get_path(runtime, item, path), case_sensitive));
  }
  return Value(Kind::list, &keys);
}

Value filter_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  List& list = iterate(runtime, input);
  std::vector<Keyed> items;
  for (const Value& item : list.items) {
    items.push_back({sort_key(runtime, item, in[2], in.truth(1, false)), item});
  }
  sort_by_key(runtime, items, in.truth(0, false));
  for (std::size_t i = 0; i < items.size(); ++i) list.items[i] = items[i].item;
  return Value(Kind::list, &list);
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is(Kind::dict)) throw Fault("dictsort takes a dict, got " + type_name(input));
  const std::string_view by = in.has(1) ? in.text(1).view() : "key";
  if (by != "key" && by != "value") throw Fault("dictsort: 'by' is key or value");
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries()) {
    List& pair = runtime.new_list();
    runtime.push(pair, key);
    runtime.push(pair, value);
    const Value chosen = by == "key" ? key : value;
    items.push_back({folded(runtime, chosen, in.truth(0, false)), Value(Kind::tuple, &pair)});
  }
  sort_by_key(runtime, items, in.truth(2, false));
  List& out = runtime.new_list();
  for (const Keyed& item : items) runtime.push(out, item.item);
  return Value(Kind::list, &out);
}

Value filter_unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "unique", {"case_sensitive", "attribute"});
  Dict& seen = runtime.new_dict();
  List& out = runtime.new_list();
  for (const Value& item : iterate(runtime, input).items) {
    const Value key = folded(runtime, get_path(runtime, item, in[1]), in.truth(0, false));
    if (seen.find(key) != nullptr) continue;
    runtime.set(seen, key, item);
    runtime.push(out, item);
  }
  return Value(Kind::generator, &out);
}

template <bool greatest>
Value filter_extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, greatest ? "max" : "min", {"case_sensitive", "attribute"});
  Value best;
  Value best_key;
  bool first = true;
  for (const Value& item : iterate(runtime, input).items) {
    const Value key = folded(runtime, get_path(runtime, item, in[1]), in.truth(0, false));
    const bool better =
        first || (greatest ? less(runtime, best_key, key) : less(runtime, key, best_key));
    first = false;
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value grouping_key(Runtime& runtime, const Value& item, const Bound& in) {
  const Value key = get_path(runtime, item, in[0]);
  return key.is_undefined() && in.given(1) ? in[1] : key;
}

Value filter_groupby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  std::vector<Keyed> items;
  for (const Value& item : iterate(runtime, input).items) {
    const Value key = folded(runtime, grouping_key(runtime, item, in), in.truth(2, false));
    items.push_back({key, item});
  }
  sort_by_key(runtime, items, false);
  List& out = runtime.new_list();
  List* members = nullptr;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i == 0 || !equals(runtime, items[i - 1].key, items[i].key)) {
      members = &runtime.new_list();
      List& group = runtime.new_list();
      group.label = "group";
      runtime.push(group, grouping_key(runtime, items[i].item, in));
      runtime.push(group, Value(Kind::list, members));
      runtime.push(out, Value(Kind::tuple, &group));
    }
    runtime.push(*members, items[i].item);
  }
  return Value(Kind::list, &out);
}

}  // namespace

std::span<const FunctionEntry> order_filters() {
  static constexpr FunctionEntry table[] = {
      {"sort", filter_sort},          {"dictsort", filter_dictsort}, {"unique", filter_unique},
      {"min", filter_extreme<false>}, {"max", filter_extreme<true>}, {"groupby", filter_groupby}};
  return table;
}

}  // namespace hyb::jinja
