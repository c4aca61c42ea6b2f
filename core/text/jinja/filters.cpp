#include "core/text/jinja/filters.h"

#include <algorithm>
#include <array>

#include "core/text/jinja/access.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/format.h"
#include "core/text/jinja/json_format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"

namespace hyb::jinja {
namespace {

constexpr std::int64_t indent_max = 64;

Value filter_default(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "default", {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (in.truth(1, false) && !is_true(input));
  if (!missing) return input;
  return in.has(0) ? in[0] : Value(Text{});
}

Value filter_length(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "length", {});
  if (input.is_text()) runtime.meter().step_bytes(input.text().size());
  return Value(length(input));
}

Value filter_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "string", {});
  return Value(to_text(runtime, input));
}

/// There is no autoescape, so nothing needs to be marked as safe.
Value filter_safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "safe", {});
  return Value(to_text(runtime, input));
}

Value filter_attr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "attr", {"name"}, 1);
  const Text name = in.text(0);
  // Items don't count here, unlike with the dot.
  if (input.is(Kind::dict)) return Value::undefined(name);
  return get_item(runtime, input, in[0]);
}

std::optional<std::string> indent_of(const Value& value) {
  if (value.is_none() || value.is_undefined()) return std::nullopt;
  if (value.is_text()) return std::string(value.view());
  if (!value.is_integral()) throw Fault("tojson: 'indent' is an integer or a string");
  if (value.integer() > indent_max) throw Fault("tojson: an indent of over 64");
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(value.integer(), 0)), ' ');
}

Value filter_tojson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound in(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = in.truth(0, false);
  style.sort_keys = in.truth(3, false);
  style.indent = indent_of(in[1]);
  if (style.indent) style.item_separator.pop_back();  // ", " to ","
  if (in.given(2)) {
    const Value separators = in[2];
    const bool pair = (separators.is(Kind::tuple) || separators.is(Kind::list)) &&
                      separators.list().items.size() == 2 && separators.list().items[0].is_text() &&
                      separators.list().items[1].is_text();
    if (!pair) throw Fault("tojson: 'separators' is a pair of strings");
    style.item_separator = separators.list().items[0].view();
    style.key_separator = separators.list().items[1].view();
  }
  return Value(to_json(runtime, input, style));
}

std::span<const FunctionEntry> value_filters() {
  static constexpr FunctionEntry table[] = {{"default", filter_default}, {"d", filter_default},
                                            {"tojson", filter_tojson},   {"length", filter_length},
                                            {"count", filter_length},    {"string", filter_string},
                                            {"safe", filter_safe},       {"attr", filter_attr}};
  return table;
}

Function find_filter(std::string_view name) {
  const std::array<std::span<const FunctionEntry>, 6> tables{value_filters(),  text_filters(),
                                                             number_filters(), sequence_filters(),
                                                             order_filters(),  selection_filters()};
  for (const auto& table : tables) {
    for (const FunctionEntry& entry : table) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

}  // namespace

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const Function function = find_filter(name);
  if (function == nullptr) throw Fault("unknown filter '" + std::string(name) + "'");
  return function(runtime, input, arguments);
}

}  // namespace hyb::jinja
