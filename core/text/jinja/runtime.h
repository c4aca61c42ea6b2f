#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/value.h"

namespace hyb::jinja {

/// Variables; names that are not found here are looked up in the parent.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names{};
  bool captured = false;  ///< a macro refers to it: it must not be reused

  const Value* find(std::string_view name) const;
  void set(std::string_view name, const Value& value);
};

/// The `loop` variable of one running for tag.
struct Loop {
  const std::vector<Value>* items;
  std::size_t index0 = 0;
};

struct Callable {
  enum class Kind : std::uint8_t { method, function, macro };
  Kind kind;
  Value self{};             ///< methods: the object
  std::string_view name{};  ///< methods and functions; outlives the rendering
  const Macro* macro = nullptr;
  Scope* scope = nullptr;  ///< macros: the scope of their definition
};

/// The memory and the meter of one rendering. All objects live until it ends.
class Runtime {
 public:
  Runtime(const RenderLimits& limits, std::optional<std::tm> now) : now_(now), meter_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Meter& meter() { return meter_; }
  const std::optional<std::tm>& now() const { return now_; }

  MarkedBuffer& new_buffer();
  List& new_list();
  Dict& new_dict();
  Scope& new_scope(Scope* parent);
  /// Recycles a scope unless a macro refers to it.
  void free_scope(Scope& scope);
  Loop& new_loop(const List& items);
  Callable& new_callable(Callable callable);
  Value new_range(const Range& range);

  /// Charges the meter before adding the item.
  void push(List& list, const Value& value);
  void set(Dict& dict, const Value& key, const Value& value);
  /// A new tuple of both.
  Value pair(const Value& key, const Value& value);

  Text text(std::string_view bytes, TextSource source = TextSource::tmpl);
  Value text_value(std::string_view bytes) { return Value(text(bytes)); }
  /// The whole content of the buffer.
  static Text whole(MarkedBuffer& buffer) { return {&buffer, 0, buffer.size()}; }
  /// In place when `a` ends its buffer, so that repeated concatenation takes linear time.
  /// Invalidates views of texts in that buffer.
  Text concatenate(const Text& a, const Text& b);

 private:
  std::optional<std::tm> now_;
  Meter meter_;
  std::deque<MarkedBuffer> buffers_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Range> ranges_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<Loop> loops_;
  std::deque<Callable> callables_;
};

/// Evaluated arguments of a call.
struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string_view, Value>> named{};
};

/// Arguments bound to the parameters of a built-in function, as in Python. Throws Fault for too
/// many, unknown, repeated or missing ones.
class Bound {
 public:
  /// `parameters`: "old new count?", where "?" marks optional ones; "*" for a function that reads
  /// arguments() itself. `arguments` and both names must outlive the object.
  Bound(const Arguments& arguments, std::string_view function, std::string_view parameters);

  const Arguments& arguments() const { return arguments_; }
  /// Given, possibly as None.
  bool has(std::size_t parameter) const {
    return parameter < values_.size() && values_[parameter].has_value();
  }
  /// Given and not None.
  bool given(std::size_t parameter) const {
    return has(parameter) && !values_[parameter]->is_none();
  }
  /// Undefined if not given.
  Value operator[](std::size_t parameter) const {
    return has(parameter) ? *values_[parameter] : Value{};
  }
  bool truth(std::size_t parameter, bool fallback) const;
  /// An integer; None counts as not given. Other values: Fault.
  std::int64_t integer(std::size_t parameter, std::int64_t fallback) const;
  /// A text. Other values: Fault.
  Text text(std::size_t parameter) const;
  std::optional<Text> optional_text(std::size_t parameter) const;

 private:
  [[noreturn]] void fail_type(std::size_t parameter, const char* expected) const;

  const Arguments& arguments_;
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

/// A built-in function; `input` is the input of a filter or the object of a method.
struct Function {
  std::string_view name;
  std::string_view parameters;  ///< see Bound
  Value (*body)(Runtime& runtime, const Value& input, const Bound& in);
};

/// nullptr if there is none of that name.
const Function* find_function(std::span<const Function> table, std::string_view name);

Value call(Runtime& runtime, const Function& function, const Value& input,
           const Arguments& arguments);

}  // namespace hyb::jinja
