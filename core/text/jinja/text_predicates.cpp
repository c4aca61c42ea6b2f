// The is... methods of strings (methods.h).
#include "core/text/jinja/methods.h"
#include "core/text/jinja/runtime.h"
#include "core/text/jinja/unicode.h"

namespace hyb::jinja {
namespace {

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }
bool is_seven_bit(char32_t c) { return c < 0x80; }

/// True if the text is not empty (or `empty_counts`) and all its characters are `wanted`.
template <bool (*wanted)(char32_t), bool empty_counts = false>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "an is... method", {});
  const std::string_view view = self.view();
  runtime.meter().step_bytes(view.size());
  for (std::size_t at = 0; at < view.size(); at += character_bytes(view, at)) {
    if (!wanted(decode_character(view, at))) return Value(false);
  }
  return Value(empty_counts || !view.empty());
}

/// True if there is a letter with case and all of those are `wanted`.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value all_cased_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound in(arguments, "an is... method", {});
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

}  // namespace

std::span<const FunctionEntry> text_predicate_methods() {
  static constexpr FunctionEntry table[] = {
      {"isdigit", all_are<is_decimal_digit>},
      {"isdecimal", all_are<is_decimal_digit>},
      {"isnumeric", all_are<is_numeric>},
      {"isalpha", all_are<is_alphabetic>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isspace", all_are<is_space>},
      {"isascii", all_are<is_seven_bit, true>},
      {"isupper", all_cased_are<is_upper_case, is_lower_case>},
      {"islower", all_cased_are<is_lower_case, is_upper_case>}};
  return table;
}

}  // namespace hyb::jinja
