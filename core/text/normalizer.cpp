#include "core/text/normalizer.h"

#include <utf8proc.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/byte_level.h"
#include "core/text/json_fields.h"
#include "core/text/unicode.h"
#include "core/text/unicode_age.h"
#include "core/text/utf8.h"

namespace hyb {
namespace {

constexpr int depth_max = 8;

/// A mark to the tables that Hugging Face normalises with.
bool was_mark(char32_t code_point) {
  if (code_point == 0x1CF2 || code_point == 0x1CF3) return true;  // letters since Unicode 12
  const bool is_so_since = code_point == 0x111C9;                 // punctuation before Unicode 11
  return is_mark(code_point) && !is_so_since && !is_younger_than_normalization(code_point);
}

/// The lower case of a character, by itself (no final sigma).
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

Normalizer::Normalizer(const Json& json, const std::string& where) { read(json, where, 0); }

void Normalizer::read(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return;
  const JsonFields fields(json, where);
  if (depth == depth_max)
    fields.fail("nested deeper than " + std::to_string(depth_max) + " levels");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const Json& steps = fields.array("normalizers");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      read(steps[i], where + "[" + std::to_string(i) + "]", depth + 1);
    }
  } else if (type == "NFC") {
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

GuardedText Normalizer::apply(GuardedText text) const {
  for (const Step& step : steps_) {
    text = std::visit([&](const auto& one) { return run(one, text); }, step);
  }
  return text;
}

GuardedText Normalizer::run(UnicodeForm step, const GuardedText& text) {
  return normalize(text, step);
}

GuardedText Normalizer::run(const Replace& step, const GuardedText& text) {
  GuardedRewrite out(text);
  std::size_t kept = 0;
  step.pattern.each_match(text.text, [&](std::size_t begin, std::size_t end) {
    out.keep(kept, begin);
    out.put(step.content, begin, end);
    kept = end;
  });
  out.keep(kept, text.text.size());
  return out.take();
}

GuardedText Normalizer::run(const Prepend& step, const GuardedText& text) {
  GuardedRewrite out(text);
  if (!text.text.empty()) out.put(step.text, 0, 0);
  out.keep(0, text.text.size());
  return out.take();
}

GuardedText Normalizer::run(Lowercase, const GuardedText& text) {
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

GuardedText Normalizer::run(StripMarks, const GuardedText& text) {
  GuardedRewrite out(text);
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    if (!was_mark(next_code_point(text.text, at))) out.keep(begin, at);
  }
  return out.take();
}

GuardedText Normalizer::run(Strip step, const GuardedText& text) {
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

GuardedText Normalizer::run(ByteLevel, const GuardedText& text) {
  GuardedRewrite out(text);
  for (std::size_t at = 0; at < text.text.size(); ++at) {
    out.put(to_byte_level(std::string_view(text.text).substr(at, 1)), at, at + 1);
  }
  return out.take();
}

}  // namespace hyb
