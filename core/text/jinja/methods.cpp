#include "core/text/jinja/methods.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/text/jinja/format.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/text_functions.h"
#include "core/text/jinja/unicode.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {
namespace {

// Methods of lists, tuples and dicts. Lists and dicts are mutable: the reference environment
// refuses that, other engines allow it, and published templates rely on it.

/// A position, clamped as by list.insert.
std::size_t clamped(std::int64_t position, std::size_t count) {
  const auto size = static_cast<std::int64_t>(count);
  if (position < 0) position = std::max<std::int64_t>(position, -size) + size;
  return static_cast<std::size_t>(std::min(position, size));
}

Value list_append(Runtime& runtime, const Value& self, const Bound& in) {
  runtime.push(self.list(), in[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Bound& in) {
  for (const Value& item : iterate(runtime, in[0]).items) runtime.push(self.list(), item);
  return Value::none();
}

Value list_insert(Runtime& runtime, const Value& self, const Bound& in) {
  std::vector<Value>& items = self.list().items;
  const std::size_t place = clamped(in.integer(0, 0), items.size());
  runtime.meter().step(items.size() / 64);
  runtime.push(self.list(), in[1]);
  std::rotate(items.begin() + static_cast<std::ptrdiff_t>(place), items.end() - 1, items.end());
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const Bound& in) {
  std::vector<Value>& items = self.list().items;
  std::int64_t position = in.integer(0, -1);
  if (position < 0) position += static_cast<std::int64_t>(items.size());
  if (position < 0 || position >= static_cast<std::int64_t>(items.size())) {
    throw Fault("pop: the list has no such item");
  }
  const auto place = items.begin() + static_cast<std::ptrdiff_t>(position);
  const Value item = *place;
  runtime.meter().step(items.size() / 64);
  items.erase(place);
  return item;
}

Value list_clear(Runtime&, const Value& self, const Bound&) {
  self.list().items.clear();
  return Value::none();
}

Value list_reverse(Runtime& runtime, const Value& self, const Bound&) {
  runtime.meter().step(self.list().items.size() / 16);
  std::reverse(self.list().items.begin(), self.list().items.end());
  return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, const Bound&) {
  return Value(Kind::list, &iterate(runtime, self));
}

Value sequence_count(Runtime& runtime, const Value& self, const Bound& in) {
  std::int64_t count = 0;
  for (const Value& item : iterate(runtime, self).items) {
    count += equals(runtime, item, in[0]) ? 1 : 0;
  }
  return Value(count);
}

Value sequence_index(Runtime& runtime, const Value& self, const Bound& in) {
  const std::vector<Value>& items = iterate(runtime, self).items;
  const std::size_t start = clamped(in.integer(1, 0), items.size());
  const std::size_t stop =
      clamped(in.integer(2, static_cast<std::int64_t>(items.size())), items.size());
  for (std::size_t i = start; i < stop; ++i) {
    if (equals(runtime, items[i], in[0])) return Value(static_cast<std::int64_t>(i));
  }
  throw Fault("index: the item is not in the list");
}

Value dict_get(Runtime&, const Value& self, const Bound& in) {
  const Value* found = self.dict().find(in[0]);
  if (found != nullptr) return *found;
  return in.has(1) ? in[1] : Value::none();
}

Value pair(Runtime& runtime, const Value& key, const Value& value) {
  List& list = runtime.new_list();
  runtime.push(list, key);
  runtime.push(list, value);
  return Value(Kind::tuple, &list);
}

Value dict_items(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_items";
  for (const auto& [key, value] : self.dict().entries()) {
    runtime.push(view, pair(runtime, key, value));
  }
  return Value(Kind::view, &view);
}

Value dict_keys(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_keys";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, key);
  return Value(Kind::view, &view);
}

Value dict_values(Runtime& runtime, const Value& self, const Bound&) {
  List& view = runtime.new_list();
  view.label = "dict_values";
  for (const auto& [key, value] : self.dict().entries()) runtime.push(view, value);
  return Value(Kind::view, &view);
}

Value dict_copy(Runtime& runtime, const Value& self, const Bound&) {
  Dict& dict = runtime.new_dict();
  for (const auto& [key, value] : self.dict().entries()) runtime.set(dict, key, value);
  return Value(Kind::dict, &dict);
}

Value dict_pop(Runtime& runtime, const Value& self, const Bound& in) {
  const Value* found = self.dict().find(in[0]);
  if (found == nullptr) {
    if (in.has(1)) return in[1];
    throw Fault("pop: the dict has no such key");
  }
  const Value value = *found;
  runtime.meter().step(self.dict().size());
  self.dict().erase(in[0]);
  return value;
}

Value dict_setdefault(Runtime& runtime, const Value& self, const Bound& in) {
  if (const Value* found = self.dict().find(in[0])) return *found;
  const Value value = in.has(1) ? in[1] : Value::none();
  runtime.set(self.dict(), in[0], value);
  return value;
}

Value dict_update(Runtime& runtime, const Value& self, const Bound& in) {
  const Arguments& arguments = in.arguments();
  if (arguments.positional.size() > 1) throw Fault("update takes one dict");
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional[0];
    if (!other.is(Kind::dict)) throw Fault("update takes a dict, got " + type_name(other));
    if (other.pointer() != self.pointer()) {
      for (const auto& [key, value] : other.dict().entries()) {
        runtime.set(self.dict(), key, value);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    runtime.set(self.dict(), runtime.text_value(name), value);
  }
  return Value::none();
}

std::span<const Function> list_methods() {
  static constexpr Function table[] = {{"append", "item", list_append},
                                       {"pop", "index?", list_pop},
                                       {"extend", "items", list_extend},
                                       {"insert", "index item", list_insert},
                                       {"index", "item start? stop?", sequence_index},
                                       {"count", "item", sequence_count},
                                       {"copy", "", list_copy},
                                       {"reverse", "", list_reverse},
                                       {"clear", "", list_clear}};
  return table;
}

std::span<const Function> tuple_methods() {
  static constexpr Function table[] = {{"index", "item start? stop?", sequence_index},
                                       {"count", "item", sequence_count}};
  return table;
}

std::span<const Function> dict_methods() {
  static constexpr Function table[] = {
      {"get", "key default?", dict_get}, {"items", "", dict_items},
      {"keys", "", dict_keys},           {"values", "", dict_values},
      {"copy", "", dict_copy},           {"update", "*", dict_update},
      {"pop", "key default?", dict_pop}, {"setdefault", "key default?", dict_setdefault}};
  return table;
}

// The is... methods of strings.

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }
bool is_seven_bit(char32_t c) { return c < 0x80; }

/// True if the text is not empty (or `empty_counts`) and all its characters are `wanted`.
template <bool (*wanted)(char32_t), bool empty_counts = false>
Value all_are(Runtime& runtime, const Value& self, const Bound&) {
  const std::string_view view = self.view();
  runtime.meter().step_bytes(view.size());
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    if (!wanted(decode_character(view, at))) return Value(false);
  }
  return Value(empty_counts || !view.empty());
}

/// True if there is a letter with case and all of those are `wanted`.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value all_cased_are(Runtime& runtime, const Value& self, const Bound&) {
  const std::string_view view = self.view();
  runtime.meter().step_bytes(view.size());
  bool any = false;
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    const char32_t c = decode_character(view, at);
    if (other(c)) return Value(false);
    any = any || wanted(c);
  }
  return Value(any);
}

std::span<const Function> text_predicate_methods() {
  static constexpr Function table[] = {
      {"isdigit", "", all_are<is_decimal_digit>},
      {"isdecimal", "", all_are<is_decimal_digit>},
      {"isnumeric", "", all_are<is_numeric>},
      {"isalpha", "", all_are<is_alphabetic>},
      {"isalnum", "", all_are<is_alphanumeric>},
      {"isspace", "", all_are<is_space>},
      {"isascii", "", all_are<is_seven_bit, true>},
      {"isupper", "", all_cased_are<is_upper_case, is_lower_case>},
      {"islower", "", all_cased_are<is_lower_case, is_upper_case>}};
  return table;
}

// Methods of strings.

template <bool left, bool right>
Value text_strip(Runtime& runtime, const Value& self, const Bound& in) {
  return Value(strip(runtime, self.text(), in.optional_text(0), {left, right}));
}

template <bool from_right>
Value text_split(Runtime& runtime, const Value& self, const Bound& in) {
  const Split how{
      .separator = in.optional_text(0), .splits = in.integer(1, -1), .from_right = from_right};
  return Value(Kind::list, &split(runtime, self.text(), how));
}

Value text_splitlines(Runtime& runtime, const Value& self, const Bound& in) {
  List& list = runtime.new_list();
  for (const Text& line : split_lines(runtime, self.text(), in.truth(0, false))) {
    runtime.push(list, Value(line));
  }
  return Value(Kind::list, &list);
}

template <bool from_right>
Value text_partition(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  const Text separator = in.text(0);
  if (separator.empty()) throw Fault("partition: the separator is empty");
  runtime.meter().step_bytes(text.size());
  const std::size_t found = from_right ? find_last(text.view(), separator.view())
                                       : find_first(text.view(), separator.view());
  List& list = runtime.new_list();
  if (found == std::string_view::npos) {
    if (from_right) runtime.push(list, Value(Text{}));
    if (from_right) runtime.push(list, Value(Text{}));
    runtime.push(list, self);
    if (!from_right) runtime.push(list, Value(Text{}));
    if (!from_right) runtime.push(list, Value(Text{}));
  } else {
    runtime.push(list, Value(text.slice(0, found)));
    runtime.push(list, Value(text.slice(found, found + separator.size())));
    runtime.push(list, Value(text.from(found + separator.size())));
  }
  return Value(Kind::tuple, &list);
}

Value text_replace(Runtime& runtime, const Value& self, const Bound& in) {
  return Value(replace(runtime, self.text(),
                       {.old = in.text(0), .fresh = in.text(1), .count = in.integer(2, -1)}));
}

Value text_join(Runtime& runtime, const Value& self, const Bound& in) {
  const List& parts = iterate(runtime, in[0]);
  for (const Value& part : parts.items) {
    if (!part.is_text()) throw Fault("join takes strings, got " + type_name(part));
  }
  return Value(join(runtime, self.text(), parts));
}

/// The part of the text that start and end arguments select; invalid if start is past its end.
struct Window {
  Text text;
  std::int64_t first = 0;  ///< its first character
  bool valid = true;
};

Window window_of(Runtime& runtime, const Text& text, const Bound& in) {
  if (!in.given(1) && !in.given(2)) return {.text = text};
  runtime.meter().step_bytes(text.size());
  const auto count = static_cast<std::int64_t>(character_count(text));
  const auto clamp = [&](std::int64_t at) {
    return at < 0 ? std::max<std::int64_t>(at < -count ? 0 : at + count, 0) : at;
  };
  const std::int64_t first = clamp(in.integer(1, 0));
  const std::int64_t last = std::min(clamp(in.integer(2, count)), count);
  if (first > last) return {.text = {}, .first = 0, .valid = false};
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(first));
  const std::size_t size = byte_offset(text.from(begin), static_cast<std::size_t>(last - first));
  return {.text = text.slice(begin, begin + size), .first = first};
}

template <bool at_end>
Value text_has_affix(Runtime& runtime, const Value& self, const Bound& in) {
  const Window window = window_of(runtime, self.text(), in);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_text())
      throw Fault("startswith and endswith take strings, got " + type_name(affix));
    if (!window.valid) return false;
    const std::string_view view = window.text.view();
    return at_end ? view.ends_with(affix.view()) : view.starts_with(affix.view());
  };
  if (!in[0].is(Kind::tuple)) return Value(matches(in[0]));
  const std::vector<Value>& affixes = in[0].list().items;
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

/// First character of the occurrence, or -1.
std::int64_t find_in_window(Runtime& runtime, const Value& self, const Bound& in, bool last) {
  const Text needle = in.text(0);
  const Window window = window_of(runtime, self.text(), in);
  if (!window.valid) return -1;
  runtime.meter().step_bytes(window.text.size());
  const std::size_t found = last ? find_last(window.text.view(), needle.view())
                                 : find_first(window.text.view(), needle.view());
  if (found == std::string_view::npos) return -1;
  return window.first + static_cast<std::int64_t>(character_count(window.text.slice(0, found)));
}

template <bool last, bool must_find>
Value text_find(Runtime& runtime, const Value& self, const Bound& in) {
  const std::int64_t found = find_in_window(runtime, self, in, last);
  if (must_find && found < 0) throw Fault("index: the string is not found");
  return Value(found);
}

Value text_count(Runtime& runtime, const Value& self, const Bound& in) {
  const std::string_view needle = in.text(0).view();
  const Window window = window_of(runtime, self.text(), in);
  if (!window.valid) return Value(std::int64_t{0});
  if (needle.empty()) return Value(static_cast<std::int64_t>(character_count(window.text)) + 1);
  runtime.meter().step_bytes(window.text.size());
  std::int64_t count = 0;
  for (std::size_t at = find_first(window.text.view(), needle); at != std::string_view::npos;
       ++count) {
    at = find_first(window.text.view(), needle, at + needle.size());
  }
  return Value(count);
}

template <bool at_end>
Value text_remove_affix(Runtime&, const Value& self, const Bound& in) {
  const std::string_view affix = in.text(0).view();
  const Text text = self.text();
  if (affix.empty()) return self;
  if (at_end) {
    return text.view().ends_with(affix) ? Value(text.slice(0, text.size() - affix.size())) : self;
  }
  return text.view().starts_with(affix) ? Value(text.from(affix.size())) : self;
}

char fill_of(const Bound& in) {
  if (!in.given(1)) return ' ';
  const std::string_view fill = in.text(1).view();
  if (fill.size() != 1) throw Fault("the fill is one ASCII character");
  return fill[0];
}

enum class Align { left, right, center };
template <Align align>
Value text_pad(Runtime& runtime, const Value& self, const Bound& in) {
  const auto count = static_cast<std::int64_t>(character_count(self.text()));
  const std::int64_t width = in.integer(0, 0);
  const char fill = fill_of(in);
  if (width <= count) return self;
  const auto room = static_cast<std::size_t>(width - count);
  // As CPython rounds: the odd one goes left only if the width is odd too.
  const std::size_t left = align == Align::left ? 0
                           : align == Align::right
                               ? room
                               : room / 2 + (room & static_cast<std::size_t>(width) & 1);
  return Value(pad(runtime, self.text(), {.left = left, .right = room - left, .fill = fill}));
}

Value text_zfill(Runtime& runtime, const Value& self, const Bound& in) {
  const Text text = self.text();
  const auto count = static_cast<std::int64_t>(character_count(text));
  if (in.integer(0, 0) <= count) return self;
  const std::size_t sign = text.view().starts_with('-') || text.view().starts_with('+') ? 1 : 0;
  const auto zeros = static_cast<std::size_t>(in.integer(0, 0) - count);
  const Text filled = pad(runtime, text.from(sign), {.left = zeros, .fill = '0'});
  MarkedBuffer& out = runtime.new_buffer();
  append(runtime.meter(), out, text.slice(0, sign));
  append(runtime.meter(), out, filled);
  return Value(Runtime::whole(out));
}

template <Text (*function)(Runtime&, const Text&)>
Value text_case(Runtime& runtime, const Value& self, const Bound&) {
  return Value(function(runtime, self.text()));
}

Value text_format(Runtime& runtime, const Value& self, const Bound& in) {
  return Value(format_braces(runtime, self.text(), in.arguments()));
}

std::span<const Function> text_methods() {
  static constexpr Function table[] = {{"split", "sep? maxsplit?", text_split<false>},
                                       {"strip", "chars?", text_strip<true, true>},
                                       {"startswith", "prefix start? end?", text_has_affix<false>},
                                       {"endswith", "prefix start? end?", text_has_affix<true>},
                                       {"replace", "old new count?", text_replace},
                                       {"lstrip", "chars?", text_strip<true, false>},
                                       {"rstrip", "chars?", text_strip<false, true>},
                                       {"rsplit", "sep? maxsplit?", text_split<true>},
                                       {"splitlines", "keepends?", text_splitlines},
                                       {"join", "iterable", text_join},
                                       {"upper", "", text_case<upper>},
                                       {"lower", "", text_case<lower>},
                                       {"casefold", "", text_case<lower>},
                                       {"title", "", text_case<title>},
                                       {"capitalize", "", text_case<capitalize>},
                                       {"swapcase", "", text_case<swap_case>},
                                       {"find", "sub start? end?", text_find<false, false>},
                                       {"rfind", "sub start? end?", text_find<true, false>},
                                       {"index", "sub start? end?", text_find<false, true>},
                                       {"rindex", "sub start? end?", text_find<true, true>},
                                       {"count", "sub start? end?", text_count},
                                       {"format", "*", text_format},
                                       {"partition", "sep", text_partition<false>},
                                       {"rpartition", "sep", text_partition<true>},
                                       {"removeprefix", "affix", text_remove_affix<false>},
                                       {"removesuffix", "affix", text_remove_affix<true>},
                                       {"ljust", "width fillchar?", text_pad<Align::left>},
                                       {"rjust", "width fillchar?", text_pad<Align::right>},
                                       {"center", "width fillchar?", text_pad<Align::center>},
                                       {"zfill", "width", text_zfill}};
  return table;
}

// Methods of the loop variable and of cyclers.

Value loop_cycle(Runtime&, const Value& self, const Bound& in) {
  const std::vector<Value>& values = in.arguments().positional;
  if (values.empty()) throw Fault("loop.cycle needs values");
  return values[self.loop().index0 % values.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Bound& in) {
  const std::vector<Value>& values = in.arguments().positional;
  Loop& loop = self.loop();
  const auto equal = [&](const Value& a, const Value& b) { return equals(runtime, a, b); };
  const bool same =
      loop.ever_changed && std::equal(loop.last_changed.begin(), loop.last_changed.end(),
                                      values.begin(), values.end(), equal);
  loop.ever_changed = true;
  loop.last_changed = values;
  return Value(!same);
}

Value cycler_next(Runtime&, const Value& self, const Bound&) {
  Callable& cycler = self.callable();
  const Value value = cycler.values[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.values.size();
  return value;
}

Value cycler_reset(Runtime&, const Value& self, const Bound&) {
  self.callable().position = 0;
  return Value::none();
}

std::span<const Function> loop_methods() {
  static constexpr Function table[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};
  return table;
}

std::span<const Function> cycler_methods() {
  static constexpr Function table[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
  return table;
}

const Function* find_method_entry(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::text: {
      const Function* found = find_function(text_methods(), name);
      return found != nullptr ? found : find_function(text_predicate_methods(), name);
    }
    case Kind::list:
      return find_function(list_methods(), name);
    case Kind::tuple:
    case Kind::range:
      return find_function(tuple_methods(), name);
    case Kind::dict:
      return find_function(dict_methods(), name);
    case Kind::loop:
      return find_function(loop_methods(), name);
    case Kind::callable:
      return object.callable().kind == Callable::Kind::cycler
                 ? find_function(cycler_methods(), name)
                 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

std::string_view find_method(const Value& object, std::string_view name) {
  const Function* entry = find_method_entry(object, name);
  return entry == nullptr ? std::string_view{} : entry->name;
}

Value call_method(Runtime& runtime, const Value& object, std::string_view name,
                  const Arguments& arguments) {
  const Function* entry = find_method_entry(object, name);
  if (entry == nullptr) throw Fault(type_name(object) + " has no method " + std::string(name));
  return call(runtime, *entry, object, arguments);
}

}  // namespace hyb::jinja
