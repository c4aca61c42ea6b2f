#include "core/text/jinja/builtins.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "core/text/jinja/format.h"
#include "core/text/jinja/json.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/strings.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

// Filters on numbers.

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// Removes single underscores between digits; empty if there are others.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alphanumeric = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !alphanumeric(i - 1) || !alphanumeric(i + 1)) return std::nullopt;
  }
  return out;
}

/// Python's int(text); empty if the text is not an integer.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  const std::string signed_digits = negative ? "-" + *digits : *digits;
  std::int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto read = std::from_chars(signed_digits.data(), end, value);
  if (read.ec == std::errc::invalid_argument || read.ptr != end) return std::nullopt;
  if (read.ec != std::errc{}) throw Fault("int: the integer is over 64 bits");
  return value;
}

/// Python's float(text).
std::optional<double> parse_real(std::string_view text) {
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto read = std::from_chars(digits->data(), end, value);
  if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);
  if (digits->find('(') != std::string::npos) return std::nullopt;  // nan(...)
  return negative ? -value : value;
}

std::int64_t truncated(double real) {
  if (std::isnan(real)) throw Fault("int: not a number");
  if (!(std::abs(real) < 9223372036854775808.0)) throw Fault("int: the number is over 64 bits");
  return static_cast<std::int64_t>(real);
}

Value filter_int(Runtime&, const Value& input, const Bound& in) {
  const Value fallback = in.has(0) ? in[0] : Value(std::int64_t{0});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_integral()) return Value(input.integer());
  if (input.is(Kind::real)) {
    return std::isnan(input.real()) ? fallback : Value(truncated(input.real()));
  }
  if (!input.is_text()) return fallback;
  if (const auto integer = parse_integer(input.view())) return Value(*integer);
  const auto real = parse_real(input.view());
  return real && !std::isnan(*real) ? Value(truncated(*real)) : fallback;
}

Value filter_float(Runtime&, const Value& input, const Bound& in) {
  const Value fallback = in.has(0) ? in[0] : Value(0.0);
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_number()) return Value(input.real());
  if (!input.is_text()) return fallback;
  const auto real = parse_real(input.view());
  return real ? Value(*real) : fallback;
}

Value filter_abs(Runtime&, const Value& input, const Bound&) {
  if (input.is_undefined()) fail_undefined(input);
  if (input.is(Kind::real)) return Value(std::abs(input.real()));
  if (!input.is_integral()) throw Fault("abs takes a number, got " + type_name(input));
  return input.integer() < 0 ? negate(input) : Value(input.integer());
}

std::span<const Function> number_filters() {
  static constexpr Function table[] = {{"int", "default?", filter_int},
                                       {"float", "default?", filter_float},
                                       {"abs", "", filter_abs}};
  return table;
}

// Filters on sequences.

Value filter_list(Runtime& runtime, const Value& input, const Bound&) {
  return Value(Kind::list, &iterate(runtime, input));
}

Value filter_join(Runtime& runtime, const Value& input, const Bound& in) {
  List& parts = iterate(runtime, input);
  for (Value& part : parts.items) {
    part = Value(to_text(runtime, get_path(runtime, part, in[1])));
  }
  return Value(join(runtime, in.has(0) ? to_text(runtime, in[0]) : Text{}, parts));
}

Value filter_first(Runtime& runtime, const Value& input, const Bound&) {
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

Value filter_last(Runtime& runtime, const Value& input, const Bound&) {
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

Value filter_reverse(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_text()) {
    return get_slice(runtime, input, {.step = Value(std::int64_t{-1})});
  }
  List& items = iterate(runtime, input);
  std::reverse(items.items.begin(), items.items.end());
  return Value(input.is(Kind::generator) ? Kind::list : Kind::generator, &items);
}

Value filter_items(Runtime& runtime, const Value& input, const Bound&) {
  List& out = runtime.new_list();
  if (!input.is_undefined()) {
    if (!input.is(Kind::dict)) throw Fault("items takes a dict, got " + type_name(input));
    for (const auto& [key, value] : input.dict().entries()) {
      runtime.push(out, runtime.pair(key, value));
    }
  }
  return Value(Kind::generator, &out);
}

std::span<const Function> sequence_filters() {
  static constexpr Function table[] = {
      {"list", "", filter_list},   {"join", "d? attribute?", filter_join},
      {"first", "", filter_first}, {"last", "", filter_last},
      {"items", "", filter_items}, {"reverse", "", filter_reverse}};
  return table;
}

// Filters that order items.

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

/// The values of the attributes "name,other.name", as a list.
Value sort_key(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  List& keys = runtime.new_list();
  if (!attribute.is_text()) {
    runtime.push(keys, folded(runtime, get_path(runtime, item, attribute), case_sensitive));
    return Value(Kind::list, &keys);
  }
  const Text comma = runtime.text(",");
  for (const Value& path : split(runtime, attribute.text(), comma).items) {
    runtime.push(keys, folded(runtime, get_path(runtime, item, path), case_sensitive));
  }
  return Value(Kind::list, &keys);
}

Value filter_sort(Runtime& runtime, const Value& input, const Bound& in) {
  List& list = iterate(runtime, input);
  std::vector<Keyed> items;
  for (const Value& item : list.items) {
    items.push_back({sort_key(runtime, item, in[2], in.truth(1, false)), item});
  }
  sort_by_key(runtime, items, in.truth(0, false));
  for (std::size_t i = 0; i < items.size(); ++i) list.items[i] = items[i].item;
  return Value(Kind::list, &list);
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Bound& in) {
  if (input.is_undefined()) fail_undefined(input);
  if (!input.is(Kind::dict)) throw Fault("dictsort takes a dict, got " + type_name(input));
  const std::string_view by = in.has(1) ? in.text(1).view() : "key";
  if (by != "key" && by != "value") throw Fault("dictsort: 'by' is key or value");
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries()) {
    const Value pair = runtime.pair(key, value), chosen = by == "key" ? key : value;
    items.push_back({folded(runtime, chosen, in.truth(0, false)), pair});
  }
  sort_by_key(runtime, items, in.truth(2, false));
  List& out = runtime.new_list();
  for (const Keyed& item : items) runtime.push(out, item.item);
  return Value(Kind::list, &out);
}

Value filter_unique(Runtime& runtime, const Value& input, const Bound& in) {
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
Value filter_extreme(Runtime& runtime, const Value& input, const Bound& in) {
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

std::span<const Function> order_filters() {
  static constexpr Function table[] = {
      {"sort", "reverse? case_sensitive? attribute?", filter_sort},
      {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
      {"unique", "case_sensitive? attribute?", filter_unique},
      {"min", "case_sensitive? attribute?", filter_extreme<false>},
      {"max", "case_sensitive? attribute?", filter_extreme<true>}};
  return table;
}

// Filters that apply other filters and tests to items.

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

Value map_attribute(Runtime& runtime, const Value& input, const Bound& in) {
  List& out = iterate(runtime, input);
  for (Value& item : out.items) {
    item = get_path(runtime, item, in[0]);
    if (item.is_undefined() && in.given(1)) item = in[1];
  }
  return Value(Kind::generator, &out);
}

Value filter_map(Runtime& runtime, const Value& input, const Bound& in) {
  const Arguments& arguments = in.arguments();
  if (!is_true(input)) return Value(Kind::generator, &runtime.new_list());
  if (arguments.positional.empty()) {
    if (arguments.named.empty()) throw Fault("map needs the name of a filter, or attribute=");
    return map_attribute(runtime, input, Bound(arguments, "map", "attribute default?"));
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
Value filter_select(Runtime& runtime, const Value& input, const Bound& in) {
  const Arguments& arguments = in.arguments();
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

std::span<const Function> selection_filters() {
  static constexpr Function table[] = {{"map", "*", filter_map},
                                       {"select", "*", filter_select<Selection{false, true}>},
                                       {"reject", "*", filter_select<Selection{false, false}>},
                                       {"selectattr", "*", filter_select<Selection{true, true}>},
                                       {"rejectattr", "*", filter_select<Selection{true, false}>}};
  return table;
}

// Filters on values of any kind.

constexpr std::int64_t indent_max = 64;

Value filter_default(Runtime&, const Value& input, const Bound& in) {
  const bool missing = input.is_undefined() || (in.truth(1, false) && !is_true(input));
  if (!missing) return input;
  return in.has(0) ? in[0] : Value(Text{});
}

Value filter_length(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_text()) runtime.meter().step_bytes(input.text().size());
  return Value(length(input));
}

/// Also `safe`: without autoescape, nothing needs to be marked as safe.
Value filter_string(Runtime& runtime, const Value& input, const Bound&) {
  return Value(to_text(runtime, input));
}

std::optional<std::string> indent_of(const Value& value) {
  if (value.is_none() || value.is_undefined()) return std::nullopt;
  if (value.is_text()) return std::string(value.view());
  if (!value.is_integral()) throw Fault("tojson: 'indent' is an integer or a string");
  if (value.integer() > indent_max) throw Fault("tojson: an indent of over 64");
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(value.integer(), 0)), ' ');
}

Value filter_tojson(Runtime& runtime, const Value& input, const Bound& in) {
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

std::span<const Function> value_filters() {
  static constexpr Function table[] = {
      {"default", "default_value? boolean?", filter_default},
      {"d", "default_value? boolean?", filter_default},
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
      {"length", "", filter_length},
      {"count", "", filter_length},
      {"string", "", filter_string},
      {"safe", "", filter_string}};
  return table;
}

const Function* find_filter(std::string_view name) {
  for (const auto& table : {value_filters(), text_filters(), number_filters(), sequence_filters(),
                            order_filters(), selection_filters()}) {
    if (const Function* function = find_function(table, name)) return function;
  }
  return nullptr;
}

}  // namespace

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const Function* function = find_filter(name);
  if (function == nullptr) throw Fault("unknown filter '" + std::string(name) + "'");
  return call(runtime, *function, input, arguments);
}

}  // namespace hyb::jinja
