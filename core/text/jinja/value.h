#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/marked_text.h"

namespace hyb::jinja {

enum class Kind : std::uint8_t {
  undefined,  ///< prints as nothing, is false; anything deeper is an error
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  range,
  generator,  ///< what lazy filters return: can be iterated once
  view,       ///< dict.items(), .keys(), .values(): a copy here
  space,      ///< namespace()
  loop,       ///< the `loop` variable
  callable,   ///< macros, bound methods, global functions
};

struct List;
class Dict;
struct Range;
struct Callable;
struct Loop;

/// A Jinja value: small and copied freely. What it points to is owned by the Heap of the rendering.
class Value {
 public:
  Value() : Value(Text{}) { kind_ = Kind::undefined; }
  explicit Value(bool boolean) : kind_(Kind::boolean), integer_(boolean ? 1 : 0) {}
  explicit Value(std::int64_t integer) : kind_(Kind::integer), integer_(integer) {}
  explicit Value(double real) : kind_(Kind::real), real_(real) {}
  explicit Value(Text text) : kind_(Kind::text), text_(text) {}
  /// `kind`: list, tuple, generator or view.
  Value(Kind kind, List* list) : kind_(kind), list_(list) {}
  /// `kind`: dict or space.
  Value(Kind kind, Dict* dict) : kind_(kind), dict_(dict) {}
  explicit Value(Range* range) : kind_(Kind::range), range_(range) {}
  explicit Value(Loop* loop) : kind_(Kind::loop), loop_(loop) {}
  explicit Value(Callable* callable) : kind_(Kind::callable), callable_(callable) {}
  static Value none() {
    Value value;
    value.kind_ = Kind::none;
    return value;
  }
  /// An undefined value whose errors name what was looked for.
  static Value undefined(Text name) {
    Value value(name);
    value.kind_ = Kind::undefined;
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_text() const { return kind_ == Kind::text; }
  /// Integers and booleans, which are integers in Python.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  bool boolean() const { return integer_ != 0; }
  std::int64_t integer() const { return integer_; }
  /// Of any number.
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  /// The text, or the name of an undefined value.
  Text text() const { return text_; }
  std::string_view view() const { return text_.view(); }
  List& list() const { return *list_; }
  Dict& dict() const { return *dict_; }
  Range& range() const { return *range_; }
  Loop& loop() const { return *loop_; }
  Callable& callable() const { return *callable_; }
  /// Identity of what a value that is no number and no text refers to.
  const void* pointer() const { return list_; }

 private:
  Kind kind_;
  union {
    std::int64_t integer_;
    double real_;
    Text text_;
    List* list_;
    Dict* dict_;
    Range* range_;
    Loop* loop_;
    Callable* callable_;
  };
};

/// What lists, tuples, generators and views hold.
struct List {
  std::vector<Value> items;
  std::size_t next = 0;      ///< generators: the first item not yet taken
  std::string_view label{};  ///< views: "dict_items", ...; tuples of groupby: "group"
};

struct Range {
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
  std::int64_t size;

  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

/// Total order of hashable values in which equal keys are equal as in Python (1 == 1.0 == True).
/// Throws Fault for lists and dicts, which can't be keys.
struct KeyLess {
  using is_transparent = void;
  bool operator()(const Value& a, const Value& b) const;
  bool operator()(const Value& a, std::string_view b) const;
  bool operator()(std::string_view a, const Value& b) const;
};

/// Keeps insertion order.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// An existing key keeps its place and its own spelling.
  void set(const Value& key, const Value& value);
  void erase(const Value& key);

 private:
  std::vector<Entry> entries_;
  std::map<Value, std::size_t, KeyLess> index_;
};

}  // namespace hyb::jinja
