#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/value.h"

namespace hyb::jinja {

class Runtime;

/// Evaluated arguments of a call.
struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string_view, Value>> named{};
};

/// Arguments assigned to the parameters of a built-in function as Python would do it. Throws Fault
/// for too many, unknown, doubled or missing ones.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view function,
        std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  /// Given, whatever it is.
  bool has(std::size_t parameter) const { return values_[parameter].has_value(); }
  /// Given and not None.
  bool given(std::size_t parameter) const {
    return has(parameter) && !values_[parameter]->is_none();
  }
  /// Undefined if not given.
  Value operator[](std::size_t parameter) const { return values_[parameter].value_or(Value{}); }
  bool truth(std::size_t parameter, bool fallback) const;
  /// An integer; None counts as not given. Other values: Fault.
  std::int64_t integer(std::size_t parameter, std::int64_t fallback) const;
  /// A text. Other values: Fault.
  Text text(std::size_t parameter) const;
  Text text_or(std::size_t parameter, Text fallback) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

/// Built-in functions take what they work on (a filter's input, a method's object) first.
using Function = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

struct FunctionEntry {
  std::string_view name;
  Function function;
};

}  // namespace hyb::jinja
