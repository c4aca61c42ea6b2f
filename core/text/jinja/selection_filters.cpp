// Filters that apply other filters and tests to items (filters.h).
#include "core/text/jinja/access.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/filters.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/predicates.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

/// The name in the first argument, and the arguments after it.
struct Applied {
  std::string name;
  Arguments arguments;
};

Applied applied_from(const Arguments& arguments, std::size_t first) {
  const Value& name = arguments.positional[first];
  if (!name.is_text()) throw Fault("the name of a filter or test is a string");
  Applied applied{.name = std::string(name.view()), .arguments = {.named = arguments.named}};
  applied.arguments.positional.assign(
      arguments.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
      arguments.positional.end());
  return applied;
}

Value map_attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in({.named = arguments.named}, "map", {"attribute", "default"}, 1);
  List& out = iterate(runtime, input);
  for (Value& item : out.items) {
    item = get_path(runtime, item, in[0]);
    if (item.is_undefined() && in.given(1)) item = in[1];
  }
  return Value(Kind::generator, &out);
}

Value filter_map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!is_true(input)) return Value(Kind::generator, &runtime.new_list());
  if (arguments.positional.empty()) {
    if (arguments.named.empty()) throw Fault("map needs the name of a filter, or attribute=");
    return map_attribute(runtime, input, arguments);
  }
  const Nested nested(runtime.meter());
  const Applied filter = applied_from(arguments, 0);
  List& out = iterate(runtime, input);
  for (Value& item : out.items) item = apply_filter(runtime, filter.name, item, filter.arguments);
  return Value(Kind::generator, &out);
}

struct Selection {
  bool by_attribute;
  bool keep;  ///< what passes the test, else what fails it
};

template <Selection selection>
Value filter_select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  List& out = runtime.new_list();
  if (!is_true(input)) return Value(Kind::generator, &out);
  const std::size_t offset = selection.by_attribute ? 1 : 0;
  if (arguments.positional.size() < offset)
    throw Fault("selectattr needs the name of an attribute");
  const bool tested = arguments.positional.size() > offset;
  const Applied test = tested ? applied_from(arguments, offset) : Applied{};
  for (const Value& item : iterate(runtime, input).items) {
    const Value value =
        selection.by_attribute ? get_path(runtime, item, arguments.positional[0]) : item;
    const bool passes =
        tested ? apply_test(runtime, test.name, value, test.arguments) : is_true(value);
    if (passes == selection.keep) runtime.push(out, item);
  }
  return Value(Kind::generator, &out);
}

}  // namespace

std::span<const FunctionEntry> selection_filters() {
  static constexpr FunctionEntry table[] = {{"map", filter_map},
                                            {"select", filter_select<Selection{false, true}>},
                                            {"reject", filter_select<Selection{false, false}>},
                                            {"selectattr", filter_select<Selection{true, true}>},
                                            {"rejectattr", filter_select<Selection{true, false}>}};
  return table;
}

}  // namespace hyb::jinja
