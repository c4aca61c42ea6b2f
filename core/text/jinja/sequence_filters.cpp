// Filters that take sequences apart and put them together (filters.h).
#include <algorithm>

#include "core/text/jinja/access.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"

namespace hyb::jinja {
namespace {

Value filter_list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "list", {});
  return Value(Kind::list, &iterate(runtime, input));
}

Value filter_join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "join", {"d", "attribute"});
  List& parts = iterate(runtime, input);
  for (Value& part : parts.items) {
    part = Value(to_text(runtime, get_path(runtime, part, in[1])));
  }
  return Value(join(runtime, in.has(0) ? to_text(runtime, in[0]) : Text{}, parts));
}

Value filter_first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "first", {});
  if (input.is(Kind::generator)) {
    List& from = input.list();
    return from.next < from.items.size() ? from.items[from.next++] : Value{};
  }
  if (input.is(Kind::dict)) {
    return input.dict().size() > 0 ? input.dict().entries().front().first : Value{};
  }
  if (input.is_text() || input.is(Kind::list))
    return get_item(runtime, input, Value(std::int64_t{0}));
  const List& items = iterate(runtime, input);
  return items.items.empty() ? Value{} : items.items.front();
}

Value filter_last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "last", {});
  if (input.is(Kind::generator)) throw Fault("last takes a sequence: put |list before it");
  if (input.is(Kind::dict)) {
    return input.dict().size() > 0 ? input.dict().entries().back().first : Value{};
  }
  if (input.is_text() || input.is(Kind::list)) {
    return get_item(runtime, input, Value(std::int64_t{-1}));
  }
  const List& items = iterate(runtime, input);
  return items.items.empty() ? Value{} : items.items.back();
}

Value filter_reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "reverse", {});
  if (input.is_text()) {
    return get_slice(runtime, input, {.step = Value(std::int64_t{-1})});
  }
  List& items = iterate(runtime, input);
  std::reverse(items.items.begin(), items.items.end());
  return Value(input.is(Kind::generator) ? Kind::list : Kind::generator, &items);
}

Value filter_items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "items", {});
  List& out = runtime.new_list();
  if (!input.is_undefined()) {
    if (!input.is(Kind::dict)) throw Fault("items takes a dict, got " + type_name(input));
    for (const auto& [key, value] : input.dict().entries()) {
      List& pair = runtime.new_list();
      runtime.push(pair, key);
      runtime.push(pair, value);
      runtime.push(out, Value(Kind::tuple, &pair));
    }
  }
  return Value(Kind::generator, &out);
}

Value filter_sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "sum", {"attribute", "start"});
  Value total = in.has(1) ? in[1] : Value(std::int64_t{0});
  if (total.is_text()) throw Fault("sum can't add strings: use join");
  for (const Value& item : iterate(runtime, input).items) {
    total = binary(runtime, BinaryOperator::add, total, get_path(runtime, item, in[0]));
  }
  return total;
}

Value filter_batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "batch", {"linecount", "fill_with"}, 1);
  const std::int64_t most = in.integer(0, 0);
  List& out = runtime.new_list();
  List* group = nullptr;
  for (const Value& item : iterate(runtime, input).items) {
    if (group == nullptr || static_cast<std::int64_t>(group->items.size()) == most) {
      group = &runtime.new_list();
      runtime.push(out, Value(Kind::list, group));
    }
    runtime.push(*group, item);
  }
  if (group != nullptr && in.given(1)) {
    while (static_cast<std::int64_t>(group->items.size()) < most) runtime.push(*group, in[1]);
  }
  return Value(Kind::generator, &out);
}

Value filter_slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "slice", {"slices", "fill_with"}, 1);
  const std::int64_t slices = in.integer(0, 0);
  if (slices == 0) throw Fault("slice: division by zero");
  const std::vector<Value>& items = iterate(runtime, input).items;
  List& out = runtime.new_list();
  const std::int64_t count = static_cast<std::int64_t>(items.size());
  const std::int64_t longer = slices > 0 ? count % slices : 0;
  std::size_t next = 0;
  for (std::int64_t number = 0; number < slices; ++number) {
    List& part = runtime.new_list();
    const std::int64_t size = count / slices + (number < longer ? 1 : 0);
    for (std::int64_t i = 0; i < size; ++i) runtime.push(part, items[next++]);
    if (in.given(1) && number >= longer) runtime.push(part, in[1]);
    runtime.push(out, Value(Kind::list, &part));
  }
  return Value(Kind::generator, &out);
}

}  // namespace

std::span<const FunctionEntry> sequence_filters() {
  static constexpr FunctionEntry table[] = {
      {"list", filter_list}, {"join", filter_join},   {"first", filter_first},
      {"last", filter_last}, {"items", filter_items}, {"reverse", filter_reverse},
      {"sum", filter_sum},   {"batch", filter_batch}, {"slice", filter_slice}};
  return table;
}

}  // namespace hyb::jinja
