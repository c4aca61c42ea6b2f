#include "core/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "core/text/jinja/unicode.h"

namespace hyb::jinja {

void MarkedBuffer::append(Meter& meter, std::string_view bytes, TextSource source) {
  if (bytes.empty()) return;
  meter.hold(bytes.size());
  meter.step_bytes(bytes.size());
  ascii_ = ascii_ && is_ascii(bytes);
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = size();
    return;
  }
  meter.hold(sizeof(Run));
  runs_.push_back({size(), source});
}

std::size_t MarkedBuffer::run_at(std::uint32_t at) const {
  const auto found =
      std::upper_bound(runs_.begin(), runs_.end(), at,
                       [](std::uint32_t byte, const Run& run) { return byte < run.end; });
  return static_cast<std::size_t>(found - runs_.begin());
}

void append(Meter& meter, MarkedBuffer& buffer, const Text& text) {
  if (text.buffer() != &buffer) {
    text.for_each_run(
        [&](std::string_view bytes, TextSource source) { buffer.append(meter, bytes, source); });
    return;
  }
  // Appending may move the bytes that are being read, so they are copied first.
  struct Piece {
    std::string bytes;
    TextSource source;
  };
  meter.expect(text.size());
  std::vector<Piece> pieces;
  text.for_each_run([&](std::string_view bytes, TextSource source) {
    pieces.push_back({std::string(bytes), source});
  });
  for (const Piece& piece : pieces) buffer.append(meter, piece.bytes, piece.source);
}

std::size_t character_count(const Text& text) {
  return text.surely_ascii() ? text.size() : count_characters(text.view());
}

std::size_t byte_offset(const Text& text, std::size_t character) {
  if (text.surely_ascii()) return character;
  const std::string_view view = text.view();
  std::size_t at = 0;
  while (character-- > 0 && at < view.size()) at += character_bytes(view, at);
  return at;
}

namespace {

/// Offsets into text are 32 bits wide.
constexpr std::size_t addressable_bytes = std::size_t{2} << 30;
constexpr std::int64_t steps_between_checks = 4096;

[[noreturn]] void fail_limit(const std::string& what) {
  throw Fault("the template reached a limit: " + what, FaultKind::limit);
}

}  // namespace

Meter::Meter(const RenderLimits& limits)
    : limits_(limits), start_(std::chrono::steady_clock::now()) {
  limits_.memory_bytes_max = std::min(limits_.memory_bytes_max, addressable_bytes);
  limits_.output_bytes_max = std::min(limits_.output_bytes_max, addressable_bytes);
  next_check_ = std::min(steps_between_checks, limits_.steps_max);
}

void Meter::hold(std::size_t bytes) {
  expect(bytes);
  held_bytes_ += bytes;
}

void Meter::expect(std::size_t bytes) const {
  if (bytes > limits_.memory_bytes_max || held_bytes_ > limits_.memory_bytes_max - bytes) {
    fail_limit(std::to_string(limits_.memory_bytes_max) + " bytes of memory");
  }
}

void Meter::check_output(std::size_t bytes) const {
  if (bytes > limits_.output_bytes_max) {
    fail_limit(std::to_string(limits_.output_bytes_max) + " bytes of output");
  }
}

void Meter::enter() {
  if (depth_ >= limits_.depth_max)
    fail_limit(std::to_string(limits_.depth_max) + " levels of nesting");
  ++depth_;
}

void Meter::check() {
  if (steps_ >= limits_.steps_max) fail_limit(std::to_string(limits_.steps_max) + " steps");
  if (std::chrono::steady_clock::now() - start_ > limits_.time_max) {
    fail_limit(std::to_string(limits_.time_max.count()) + " ms of time");
  }
  next_check_ = std::min(steps_ + steps_between_checks, limits_.steps_max);
}

namespace {

constexpr int key_depth_max = 64;
constexpr int text_rank = 3;

int rank(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::none:
      return 1;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return 2;
    case Kind::text:
      return text_rank;
    case Kind::tuple:
      return 4;
    case Kind::list:
      throw Fault("unhashable type: 'list'");
    case Kind::dict:
      throw Fault("unhashable type: 'dict'");
    default:
      return 5;
  }
}

/// Throws for lists and dicts, also inside tuples.
void check_hashable(const Value& value, int depth = 0) {
  rank(value);
  if (!value.is(Kind::tuple)) return;
  if (depth > key_depth_max) throw Fault("a dict key is nested too deeply");
  for (const Value& item : value.list().items) check_hashable(item, depth + 1);
}

template <typename T>
int three_way(T a, T b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

int compare_keys(const Value& a, const Value& b, int depth) {
  const int a_rank = rank(a);
  if (const int order = three_way(a_rank, rank(b)); order != 0) return order;
  switch (a_rank) {
    case 0:
    case 1:
      return 0;
    case 2:
      return compare_numbers(a, b);
    case text_rank:
      return three_way(a.view(), b.view());
    case 4:
      break;
    default:
      return three_way(a.pointer(), b.pointer());
  }
  if (depth > key_depth_max) throw Fault("a dict key is nested too deeply");
  const std::vector<Value>& left = a.list().items;
  const std::vector<Value>& right = b.list().items;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (const int order = compare_keys(left[i], right[i], depth + 1); order != 0) return order;
  }
  return three_way(left.size(), right.size());
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return three_way(a.integer(), b.integer());
  // 64 bits of mantissa hold every integer and every double.
  const auto widen = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.integer())
                               : static_cast<long double>(value.real());
  };
  const bool a_nan = std::isnan(a.real());
  const bool b_nan = std::isnan(b.real());
  if (a_nan || b_nan) return three_way(a_nan, b_nan);
  return three_way(widen(a), widen(b));
}

bool KeyLess::operator()(const Value& a, const Value& b) const { return compare_keys(a, b, 0) < 0; }

bool KeyLess::operator()(const Value& a, std::string_view b) const {
  const int order = rank(a);
  return order != text_rank ? order < text_rank : a.view() < b;
}

bool KeyLess::operator()(std::string_view a, const Value& b) const {
  const int order = rank(b);
  return order != text_rank ? text_rank < order : a < b.view();
}

const Value* Dict::find(const Value& key) const {
  check_hashable(key);
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void Dict::set(const Value& key, const Value& value) {
  check_hashable(key);
  const auto [place, added] = index_.emplace(key, entries_.size());
  if (added) {
    entries_.emplace_back(key, value);
  } else {
    entries_[place->second].second = value;
  }
}

void Dict::erase(const Value& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  const std::size_t gone = found->second;
  index_.erase(found);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(gone));
  for (auto& [other, place] : index_) {
    if (place > gone) --place;
  }
}

}  // namespace hyb::jinja
