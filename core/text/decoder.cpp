#include "core/text/decoder.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/text/normalizer.h"
#include "core/text/tokenizer_json.h"
#include "core/text/vocabulary.h"

namespace hyb {
namespace {

constexpr std::int64_t strip_max = 1024;

/// The byte of "<0xNN>", exactly two hexadecimal digits.
std::optional<char> byte_of_token(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : piece.substr(3, 2)) {
    const bool decimal = digit >= '0' && digit <= '9';
    const char lower = static_cast<char>(digit | 0x20);
    if (!decimal && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + (decimal ? digit - '0' : lower - 'a' + 10);
  }
  return static_cast<char>(value);
}

std::string stripped(std::string_view piece, std::string_view character, std::size_t start,
                     std::size_t stop) {
  for (std::size_t i = 0; i < start && piece.starts_with(character); ++i) {
    piece.remove_prefix(character.size());
  }
  for (std::size_t i = 0; i < stop && piece.ends_with(character); ++i) {
    piece.remove_suffix(character.size());
  }
  return std::string(piece);
}

std::string replaced(const Pattern& pattern, std::string_view content, std::string_view piece,
                     GrowthLimit& growth) {
  std::string out;
  std::size_t kept = 0;
  pattern.each_match(piece, [&](std::size_t begin, std::size_t end) {
    growth.charge(end - begin, content.size());
    out.append(piece.substr(kept, begin - kept)).append(content);
    kept = end;
  });
  return out.append(piece.substr(kept));
}

std::string with_spaces(std::string_view piece, std::string_view replacement, bool drop) {
  std::string out;
  while (!piece.empty()) {
    if (piece.starts_with(replacement)) {
      if (!drop) out += ' ';
      piece.remove_prefix(replacement.size());
    } else {
      out += piece.front();
      piece.remove_prefix(1);
    }
  }
  return out;
}

bool is_one_character(std::string_view text) {
  std::size_t length = 0;
  if (!text.empty()) next_code_point(text, length);
  return !text.empty() && length == text.size();
}

template <typename Kind, typename Variant>
bool is(const Variant& step) {
  return std::holds_alternative<Kind>(step);
}

}  // namespace

PieceDecoder::PieceDecoder(const Json& json, const std::string& where) : where_(where) {
  if (json.is_null()) {
    steps_.emplace_back(Join{});
  } else {
    read(json, where, 0);
  }
  check_step_count(steps_.size(), where);
}

void PieceDecoder::read(const Json& json, const std::string& where, int depth) {
  const JsonFields fields(json, where);
  const std::string type = fields.step_type(
      depth, "decoders", [&](const Json& step, const auto& at) { read(step, at, depth + 1); });
  if (type == "Sequence") return;
  if (type == "ByteLevel") {
    add(ByteLevel{}, where, type);
    fused_ = true;
  } else if (type == "Replace") {
    add(Replace{read_pattern(fields.at("pattern"), where + ".pattern"), fields.text("content")},
        where, type);
  } else if (type == "ByteFallback") {
    add(ByteFallback{}, where, type);
  } else if (type == "Fuse") {
    fused_ = true;  // later steps get the text as a stream
  } else if (type == "Strip") {
    read_strip(json, where);
  } else if (type == "Metaspace") {
    read_metaspace(json, where);
  } else {
    fields.fail("the decoder \"" + type + "\" is not supported");
  }
}

void PieceDecoder::add(Step step, const std::string& where, const std::string& type) {
  if (fused_ && !is<Strip>(step)) {
    throw Error(ErrorKind::model,
                where + ": \"" + type + "\" after Fuse or ByteLevel is not supported");
  }
  steps_.push_back(std::move(step));
}

void PieceDecoder::read_strip(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  const std::string character = fields.text("content");
  const std::int64_t start = fields.integer("start");
  const std::int64_t stop = fields.integer("stop");
  if (!is_one_character(character)) fields.fail("\"content\" must be one character");
  if (start < 0 || start > strip_max || stop < 0 || stop > strip_max) {
    fields.fail("\"start\" and \"stop\" are 0 to " + std::to_string(strip_max));
  }
  add(Strip{character, static_cast<std::size_t>(start), static_cast<std::size_t>(stop), fused_},
      where, "Strip");
}

void PieceDecoder::read_metaspace(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  const std::string replacement = fields.text_or("replacement", "\xE2\x96\x81");
  if (!is_one_character(replacement)) fields.fail("\"replacement\" must be one character");
  const bool prefix = fields.flag_or("add_prefix_space", true);  // older files
  const std::string scheme = fields.text_or("prepend_scheme", prefix ? "always" : "never");
  add(Metaspace{replacement, scheme != "never"}, where, "Metaspace");
}

std::string PieceDecoder::bytes_of(std::string_view piece) const {
  GrowthLimit growth(where_, piece.size());
  std::string bytes(piece);
  for (const Step& step : steps_) {
    if (is<ByteLevel>(step)) {
      append_from_byte_level(std::exchange(bytes, {}), bytes);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      bytes = replaced(replace->pattern, replace->content, bytes, growth);
    } else if (is<ByteFallback>(step)) {
      if (const auto byte = byte_of_token(bytes)) return {*byte};
    } else if (const auto* strip = std::get_if<Strip>(&step); strip != nullptr && !strip->whole) {
      bytes = stripped(bytes, strip->character, strip->start, strip->stop);
    } else if (const auto* spaces = std::get_if<Metaspace>(&step)) {
      bytes = with_spaces(bytes, spaces->replacement, false);
    }
  }
  return bytes;
}

PieceDecoder::Run::Run(const PieceDecoder& decoder, bool eager)
    : decoder_(&decoder),
      eager_(eager),
      growth_(decoder.where_, 0),
      states_(decoder.steps_.size()) {}

void PieceDecoder::Run::push(std::string_view piece, std::string& out) {
  growth_ = {decoder_->where_, piece.size()};
  feed(0, piece, out);
}

void PieceDecoder::Run::feed(std::size_t step, std::string_view piece, std::string& out) {
  if (step == states_.size()) {
    out.append(piece);
    return;
  }
  const Step& kind = decoder_->steps_[step];
  State& state = states_[step];
  const bool first = state.pieces++ == 0;
  if (is<Join>(kind)) {
    if (!first) out += ' ';
    feed(step + 1, piece, out);
  } else if (is<ByteLevel>(kind)) {
    std::string bytes;
    append_from_byte_level(piece, bytes);
    std::string text;
    state.characters.push(bytes, text);
    feed(step + 1, text, out);
  } else if (const auto* replace = std::get_if<Replace>(&kind)) {
    feed(step + 1, replaced(replace->pattern, replace->content, piece, growth_), out);
  } else if (is<ByteFallback>(kind)) {
    feed_fallback(step, piece, out);
  } else if (const auto* strip = std::get_if<Strip>(&kind)) {
    if (strip->whole) return feed_strip(step, piece, out);
    feed(step + 1, stripped(piece, strip->character, strip->start, strip->stop), out);
  } else if (const auto* spaces = std::get_if<Metaspace>(&kind)) {
    feed(step + 1, with_spaces(piece, spaces->replacement, first && spaces->strips_first), out);
  }
}

void PieceDecoder::Run::feed_fallback(std::size_t step, std::string_view piece, std::string& out) {
  State& state = states_[step];
  const auto byte = byte_of_token(piece);
  if (!byte) {
    end_bytes(step, out);
    return feed(step + 1, piece, out);
  }
  if (!eager_) {
    state.bytes += *byte;
    return;
  }
  std::string text;
  state.characters.push({&*byte, 1}, text);
  if (!text.empty()) feed(step + 1, text, out);
}

/// Ends a run of byte tokens.
void PieceDecoder::Run::end_bytes(std::size_t step, std::string& out) {
  State& state = states_[step];
  growth_ = {decoder_->where_, state.bytes.size()};
  std::string text;
  state.characters.flush(text);
  if (is_well_formed(state.bytes)) {
    text += state.bytes;
  } else {
    for (std::size_t i = 0; i < state.bytes.size(); ++i) text += replacement_character;
  }
  state.bytes.clear();
  if (!text.empty()) feed(step + 1, text, out);
}

/// Strips the whole text as a stream: removes its start, holds back what may be its end.
void PieceDecoder::Run::feed_strip(std::size_t step, std::string_view text, std::string& out) {
  const Strip& strip = std::get<Strip>(decoder_->steps_[step]);
  State& state = states_[step];
  while (!state.started && state.stripped < strip.start && text.starts_with(strip.character)) {
    text.remove_prefix(strip.character.size());
    ++state.stripped;
  }
  if (text.empty()) return;
  state.started = true;
  std::string all = std::move(state.held) + std::string(text);
  std::size_t kept = all.size();
  for (std::size_t i = 0; i < strip.stop; ++i) {
    if (!std::string_view(all).substr(0, kept).ends_with(strip.character)) break;
    kept -= strip.character.size();
  }
  state.held = all.substr(kept);
  all.resize(kept);
  feed(step + 1, all, out);
}

void PieceDecoder::Run::flush(std::string& out) {
  for (std::size_t step = 0; step < states_.size(); ++step) {
    const Step& kind = decoder_->steps_[step];
    if (is<ByteFallback>(kind)) end_bytes(step, out);
    if (is<ByteLevel>(kind)) {
      std::string text;
      states_[step].characters.flush(text);
      if (!text.empty()) feed(step + 1, text, out);
    }
  }
  states_.assign(states_.size(), State{});
}

}  // namespace hyb
