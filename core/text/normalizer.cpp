#include "core/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "core/text/vocabulary.h"

namespace hyb {
namespace {

struct FormRules {
  bool compose;
  bool compatible;
  char32_t stable_below;  // characters below it do not change and compose with none before them
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

/// Appends the normal form of characters that interact with none before or after them, and clears
/// them.
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
    if (is_newer_than_normalization(code_point)) {
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

/// Puts a normalised run. Unchanged characters at its ends keep their guards, so that a change
/// inherits no guard from far away.
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
  std::size_t kept = 0;    // end of what was written
  std::size_t before = 0;  // start of the last stable character: marks may compose with it
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

namespace {

/// A mark in the Unicode 9.0 tables that Hugging Face normalises with.
bool is_mark_in_unicode_9(char32_t code_point) {
  if (code_point == 0x1CF2 || code_point == 0x1CF3) return true;  // letters since Unicode 12
  const bool is_newer_mark = code_point == 0x111C9;               // punctuation before Unicode 11
  return is_mark(code_point) && !is_newer_mark && !is_newer_than_normalization(code_point);
}

/// The lower case of a single character (no final sigma).
void append_lower(std::string& out, char32_t code_point) {
  constexpr char32_t capital_i_with_dot = 0x130;
  if (code_point == capital_i_with_dot) {
    out += "i\xCC\x87";  // the one character whose lower case is two
    return;
  }
  append_utf8(out,
              static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
}

}  // namespace

Pattern read_pattern(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  if (fields.at("Regex").is_string()) return Pattern(fields.text("Regex"), where);
  if (!fields.at("String").is_string())
    fields.fail("{\"String\": ...} or {\"Regex\": ...} is expected");
  const std::string text = fields.text("String");
  if (text.empty()) fields.fail("an empty pattern matches nothing");
  return Pattern::literal(text, where);
}

Normalizer::Normalizer(const Json& json, const std::string& where) : where_(where) {
  read(json, where, 0);
  check_step_count(steps_.size(), where);
}

void Normalizer::read(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return;
  const JsonFields fields(json, where);
  const std::string type = fields.step_type(
      depth, "normalizers", [&](const Json& step, const auto& at) { read(step, at, depth + 1); });
  if (type == "Sequence") return;
  if (type == "NFC") {
    steps_.emplace_back(UnicodeForm::nfc);
  } else if (type == "NFD") {
    steps_.emplace_back(UnicodeForm::nfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(UnicodeForm::nfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(UnicodeForm::nfkd);
  } else if (type == "Replace") {
    steps_.emplace_back(
        Replace{read_pattern(fields.at("pattern"), where + ".pattern"), fields.text("content")});
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{fields.text("prepend")});
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripMarks{});
  } else if (type == "Strip") {
    steps_.emplace_back(
        Strip{fields.flag_or("strip_left", true), fields.flag_or("strip_right", true)});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else {
    fields.fail("the normalizer \"" + type + "\" is not supported");
  }
}

GuardedText Normalizer::apply(GuardedText text, GrowthLimit& growth) const {
  for (const Step& step : steps_) {
    text = std::visit([&](const auto& one) { return run(one, text, growth); }, step);
  }
  return text;
}

GuardedText Normalizer::run(UnicodeForm step, const GuardedText& text, GrowthLimit&) {
  return normalize(text, step);
}

GuardedText Normalizer::run(const Replace& step, const GuardedText& text, GrowthLimit& growth) {
  GuardedRewrite out(text, &growth);
  std::size_t kept = 0;
  step.pattern.each_match(text.text, [&](std::size_t begin, std::size_t end) {
    out.keep(kept, begin);
    out.put(step.content, begin, end);
    kept = end;
  });
  out.keep(kept, text.text.size());
  return out.take();
}

GuardedText Normalizer::run(const Prepend& step, const GuardedText& text, GrowthLimit& growth) {
  GuardedRewrite out(text, &growth);
  if (!text.text.empty()) out.put(step.text, 0, 0);
  out.keep(0, text.text.size());
  return out.take();
}

GuardedText Normalizer::run(Lowercase, const GuardedText& text, GrowthLimit&) {
  GuardedRewrite out(text);
  std::string lower;
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    lower.clear();
    append_lower(lower, next_code_point(text.text, at));
    out.put(lower, begin, at);
  }
  return out.take();
}

GuardedText Normalizer::run(StripMarks, const GuardedText& text, GrowthLimit&) {
  GuardedRewrite out(text);
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    if (!is_mark_in_unicode_9(next_code_point(text.text, at))) out.keep(begin, at);
  }
  return out.take();
}

GuardedText Normalizer::run(Strip step, const GuardedText& text, GrowthLimit&) {
  std::size_t begin = 0;
  std::size_t end = text.text.size();
  for (std::size_t at = 0; step.left && at < end; begin = at) {
    if (!is_white_space(next_code_point(text.text, at))) break;
  }
  while (step.right && end > begin && is_white_space(code_point_before(text.text, end))) {
    do --end;
    while ((static_cast<unsigned char>(text.text[end]) & 0xC0) == 0x80);
  }
  return text.slice(begin, end);
}

GuardedText Normalizer::run(ByteLevel, const GuardedText& text, GrowthLimit& growth) {
  GuardedRewrite out(text, &growth);
  for (std::size_t at = 0; at < text.text.size(); ++at) {
    out.put(to_byte_level(std::string_view(text.text).substr(at, 1)), at, at + 1);
  }
  return out.take();
}

}  // namespace hyb
