#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/chat_template.h"

namespace hyb::jinja {

enum class FaultKind {
  failure,  ///< an error by the rules of Jinja
  raised,   ///< the template called raise_exception
  limit,    ///< a limit of RenderLimits was reached
};

/// Ends a rendering; ChatTemplate turns it into an Error with line and column.
class Fault : public std::runtime_error {
 public:
  explicit Fault(const std::string& text, FaultKind kind = FaultKind::failure)
      : std::runtime_error(text), kind_(kind) {}

  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

class Meter;

/// Bytes with their sources, run by run. Append-only, so a Text that refers to it never changes.
class MarkedBuffer {
 public:
  /// Ends before `end` and starts where the previous run ends.
  struct Run {
    std::uint32_t end;
    TextSource source;
  };

  /// Charges the meter before it copies.
  void append(Meter& meter, std::string_view bytes, TextSource source);

  std::string_view bytes() const { return bytes_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes_.size()); }
  const std::vector<Run>& runs() const { return runs_; }
  /// Index of the run that holds the byte at `at`.
  std::size_t run_at(std::uint32_t at) const;
  bool ascii() const { return ascii_; }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool ascii_ = true;
};

/// An immutable string value: a stretch of a buffer; empty by default. Offsets are bytes from its
/// start.
class Text {
 public:
  Text() = default;
  Text(MarkedBuffer* buffer, std::uint32_t begin, std::uint32_t end)
      : buffer_(buffer), begin_(begin), end_(end) {}

  /// Valid until the next append to the buffer, which only `concatenate` does.
  std::string_view view() const {
    return buffer_ == nullptr ? std::string_view{} : buffer_->bytes().substr(begin_, end_ - begin_);
  }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  /// If true, every character is one byte long; may be false for such a text.
  bool surely_ascii() const { return buffer_ == nullptr || buffer_->ascii(); }

  Text slice(std::size_t begin, std::size_t end) const {
    return {buffer_, begin_ + static_cast<std::uint32_t>(begin),
            begin_ + static_cast<std::uint32_t>(end)};
  }
  Text from(std::size_t begin) const { return slice(begin, size()); }

  /// Calls `use(bytes, source)` for each run.
  template <typename Use>
  void for_each_run(Use use) const {
    if (empty()) return;
    std::uint32_t at = begin_;
    for (std::size_t run = buffer_->run_at(begin_); at < end_; ++run) {
      const MarkedBuffer::Run& here = buffer_->runs()[run];
      const std::uint32_t stop = here.end < end_ ? here.end : end_;
      use(buffer_->bytes().substr(at, stop - at), here.source);
      at = stop;
    }
  }

  /// Returns whether the text ends its buffer, so that it can be extended in place.
  bool at_end_of_buffer() const { return buffer_ != nullptr && end_ == buffer_->size(); }
  MarkedBuffer* buffer() const { return buffer_; }
  std::uint32_t begin() const { return begin_; }

 private:
  MarkedBuffer* buffer_ = nullptr;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
};

/// Appends a text with its sources; it may be a stretch of the same buffer.
void append(Meter& meter, MarkedBuffer& buffer, const Text& text);

/// Number of characters (code points).
std::size_t character_count(const Text& text);
/// Byte offset of a character; `character` is at most the count.
std::size_t byte_offset(const Text& text, std::size_t character);

/// Counts the cost of a rendering and throws Fault(limit) when it exceeds RenderLimits.
class Meter {
 public:
  explicit Meter(const RenderLimits& limits);

  /// A step is roughly the work of one expression, one item, or 64 bytes of text.
  void step(std::size_t steps = 1) {
    steps_ += static_cast<std::int64_t>(steps);
    if (steps_ >= next_check_) check();
  }
  void step_bytes(std::size_t bytes) { step(bytes / 64); }

  /// Memory in use; what is not dropped lives until the rendering ends.
  void hold(std::size_t bytes);
  void drop(std::size_t bytes) { held_bytes_ -= bytes; }
  /// Throws if `bytes` more would exceed the limit.
  void expect(std::size_t bytes) const;

  void check_output(std::size_t bytes) const;

  void enter();
  void leave() { --depth_; }

 private:
  void check();

  RenderLimits limits_;
  std::int64_t steps_ = 0;
  std::int64_t next_check_ = 0;
  std::size_t held_bytes_ = 0;
  int depth_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// One level of nesting for the lifetime of the object.
class Nested {
 public:
  explicit Nested(Meter& meter) : meter_(meter) { meter.enter(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { meter_.leave(); }

 private:
  Meter& meter_;
};

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
  generator,  ///< the result of a lazy filter: can be iterated once
  view,       ///< dict.items(), .keys(), .values(); here a copy
  space,      ///< namespace()
  loop,       ///< the `loop` variable
  callable,   ///< macros, bound methods, global functions
};

struct List;
class Dict;
struct Range;
struct Callable;
struct Loop;

/// A Jinja value: small and cheap to copy. The Runtime of the rendering owns what it points to.
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
  /// An undefined value that remembers its name for errors.
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
  /// The value of any number.
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  /// The text, or the name of an undefined value.
  Text text() const { return text_; }
  std::string_view view() const { return text_.view(); }
  List& list() const { return *list_; }
  Dict& dict() const { return *dict_; }
  Range& range() const { return *range_; }
  Loop& loop() const { return *loop_; }
  Callable& callable() const { return *callable_; }
  /// The identity of the object of a value that is neither number nor text.
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

/// The content of a list, tuple, generator or view.
struct List {
  std::vector<Value> items;
  std::size_t next = 0;      ///< generators: the next item
  std::string_view label{};  ///< views: "dict_items", ...; tuples of groupby: "group"
};

struct Range {
  std::int64_t start;
  std::int64_t stop;
  std::int64_t step;
  std::int64_t size;

  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

/// Negative, 0 or positive: a total order of numbers in which NaN is the largest.
int compare_numbers(const Value& a, const Value& b);

/// Total order of hashable values in which equal keys are equal as in Python (1 == 1.0 == True).
/// Throws Fault for lists and dicts, which can't be keys.
struct KeyLess {
  using is_transparent = void;
  bool operator()(const Value& a, const Value& b) const;
  bool operator()(const Value& a, std::string_view b) const;
  bool operator()(std::string_view a, const Value& b) const;
};

/// A map that keeps insertion order.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// An existing key keeps its position and its spelling (1 or 1.0).
  void set(const Value& key, const Value& value);
  void erase(const Value& key);

 private:
  std::vector<Entry> entries_;
  std::map<Value, std::size_t, KeyLess> index_;
};

}  // namespace hyb::jinja
