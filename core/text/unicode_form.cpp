#include "core/text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/text/unicode_age.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

struct FormRules {
  bool compose;
  bool compatible;
  char32_t stable_below;  // such characters stay as they are and compose with none before them
};

FormRules rules_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc:
      return {true, false, 0x300};
    case UnicodeForm::nfd:
      return {false, false, 0xC0};
    case UnicodeForm::nfkc:
      return {true, true, 0xA0};
    case UnicodeForm::nfkd:
      return {false, true, 0xA0};
  }
  return {};
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Stable sort of every run of non-starters by combining class. utf8proc's own reordering swaps
/// neighbours, which is quadratic on a flood of marks.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  auto begin = points.begin();
  while (begin != points.end()) {
    begin =
        std::find_if(begin, points.end(), [](auto point) { return combining_class(point) != 0; });
    const auto end =
        std::find_if(begin, points.end(), [](auto point) { return combining_class(point) == 0; });
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

/// Appends the normal form of characters that none before or behind them touch, and clears them.
void append_form(std::vector<utf8proc_int32_t>& points, const FormRules& rules, std::string& out) {
  order_marks(points);
  if (rules.compose) {
    const auto left = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    points.resize(static_cast<std::size_t>(left));
  }
  for (const auto point : points) append_utf8(out, static_cast<char32_t>(point));
  points.clear();
}

std::string normalize_run(std::string_view run, const FormRules& rules) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (rules.compatible) options |= UTF8PROC_COMPAT;
  std::string text;
  text.reserve(run.size());
  std::vector<utf8proc_int32_t> points;
  for (std::size_t at = 0; at < run.size();) {
    const char32_t code_point = next_code_point(run, at);
    if (is_younger_than_normalization(code_point)) {
      append_form(points, rules, text);
      append_utf8(text, code_point);
      continue;
    }
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, 32,
                                               static_cast<utf8proc_option_t>(options), &boundary);
    points.insert(points.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
  }
  append_form(points, rules, text);
  return text;
}

/// Puts a normalised run. The characters at its ends that stay as they were keep their guards, so
/// that a change takes no guard from far away.
void put_run(GuardedRewrite& out, const GuardedText& source, std::size_t begin, std::size_t end,
             const FormRules& rules) {
  const std::string_view old = std::string_view(source.text).substr(begin, end - begin);
  const std::string run = normalize_run(old, rules);
  const auto continues = [](std::string_view text, std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  const std::size_t both = std::min(old.size(), run.size());
  std::size_t head = 0;
  while (head < both && old[head] == run[head]) ++head;
  while (head > 0 && (continues(old, head) || continues(run, head))) --head;
  std::size_t tail = 0;
  while (tail < both - head && old[old.size() - 1 - tail] == run[run.size() - 1 - tail]) ++tail;
  while (tail > 0 && continues(old, old.size() - tail)) --tail;
  out.keep(begin, begin + head);
  out.put(std::string_view(run).substr(head, run.size() - tail - head), begin + head, end - tail);
  out.keep(end - tail, end);
}

}  // namespace

GuardedText normalize(const GuardedText& source, UnicodeForm form) {
  const FormRules rules = rules_of(form);
  const std::string_view text = source.text;
  GuardedRewrite out(source);
  std::size_t kept = 0;    // up to here is written
  std::size_t before = 0;  // the last stable character begins here: marks may compose with it
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    if (next_code_point(text, at) < rules.stable_below) {
      before = here;
      continue;
    }
    std::size_t end = at;
    while (end < text.size()) {
      std::size_t next = end;
      if (next_code_point(text, next) < rules.stable_below) break;
      end = next;
    }
    const std::size_t begin = std::max(before, kept);
    out.keep(kept, begin);
    put_run(out, source, begin, end, rules);
    kept = end;
    before = end;
    at = end;
  }
  out.keep(kept, text.size());
  return out.take();
}

}  // namespace hyb
