#include "core/text/answer_scanner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/strings.h"

namespace hyb {

ThoughtMarkers thought_markers_of(const Tokenizer& tokenizer) {
  constexpr ThoughtMarkers known[] = {
      {},
      {.begin = "<|channel|>analysis",
       .end = "<|end|>",
       .name = "<|message|>",
       .answer = "<|start|>assistant<|channel|>final<|message|>",
       .has_headers = true,
       .is_in_content = false},
      {.begin = "<|channel>", .end = "<channel|>", .name = "thought"},
      {.begin = "[THINK]", .end = "[/THINK]"},
      {.begin = "<|START_THINKING|>", .end = "<|END_THINKING|>", .is_in_content = false},
      {.begin = "<seed:think>", .end = "</seed:think>"}};
  const auto has = [&](std::string_view token) { return tokenizer.find(token).has_value(); };
  for (const ThoughtMarkers& markers : known) {
    const bool is_here = markers.has_headers ? has("<|channel|>") && has("<|message|>")
                                             : has(markers.begin) && has(markers.end);
    if (is_here) return markers;
  }
  return {};
}

namespace {

constexpr std::string_view header_end = "<|message|>";
constexpr std::string_view channel_begin = "<|channel|>", type_begin = "<|constrain|>";
constexpr std::string_view role_begin = "<|start|>", recipient_begin = "to=";
constexpr std::string_view message_ends[] = {"<|end|>", "<|return|>", "<|call|>"};
constexpr std::size_t header_bytes_max = 256;

bool is_message_end(std::string_view text) {
  const auto ends = [&](std::string_view end) { return text.starts_with(end); };
  return std::any_of(std::begin(message_ends), std::end(message_ends), ends);
}

/// True if the text begins what ends a message.
bool is_break(std::string_view text) {
  return text.starts_with(role_begin) || text.starts_with(channel_begin) || is_message_end(text);
}

/// Returns whether more text may make it one of those that a header begins a part of itself with.
bool is_part_of_marker(std::string_view text) {
  const auto may_be = [&](std::string_view marker) { return marker.starts_with(text); };
  return may_be(header_end) || may_be(channel_begin) || may_be(type_begin) || may_be(role_begin) ||
         std::any_of(std::begin(message_ends), std::end(message_ends), may_be);
}

/// Returns where a message ends, or may end once there is more text; at least the text's end.
std::size_t message_end(std::string_view text, std::size_t from) {
  std::size_t at = text.find('<', from);
  while (at != std::string_view::npos && !is_break(text.substr(at)) &&
         !is_part_of_marker(text.substr(at))) {
    at = text.find('<', at + 1);
  }
  return std::min(at, text.size());
}

/// A header of harmony, as far as a text has it. Positions are bytes of the text.
struct Header {
  enum class State : std::uint8_t {
    open,    ///< more text may belong to it
    whole,   ///< with its <|message|>
    refuted  ///< what follows is none of its parts
  };
  State state = State::open;
  std::size_t end = 0;       ///< of the parts that certainly are some
  std::size_t role_end = 0;  ///< of the ends of messages before it and its role
  std::size_t channel_at = 0, channel_end = 0;
  std::string_view role = {}, channel = {}, recipient = {};

  AnswerPart part() const {
    if (!role.empty() && !role.starts_with("assistant")) return AnswerPart::thought;
    const bool is_addressed = !recipient.empty() && recipient != "all" && channel != "final";
    if (is_addressed) return AnswerPart::call;
    return channel == "analysis" ? AnswerPart::thought : AnswerPart::answer;
  }
};

class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Header read() {
    while (header_.state == Header::State::open) {
      const std::string_view rest = trim_left(text_.substr(at_));
      const std::size_t word_at = text_.size() - rest.size();
      if (word_at > header_bytes_max) {
        header_.state = Header::State::refuted;
      } else if (rest.empty() || !read_part(rest, word_at)) {
        break;
      }
    }
    return header_;
  }

 private:
  /// The word after a place, up to white space or a marker; one that is too long is none.
  std::string_view word(std::size_t place) {
    const std::size_t begin = text_.size() - trim_left(text_.substr(place)).size();
    const std::size_t end = std::min(text_.find_first_of(" \t\r\n<", begin), text_.size());
    at_ = place;
    if (end > header_bytes_max) {
      header_.state = Header::State::refuted;
      return {};
    }
    at_ = end;
    return text_.substr(begin, end - begin);
  }

  /// False: there has to be more text to say what comes.
  bool read_part(std::string_view rest, std::size_t place) {
    const auto behind = [&](std::string_view marker) { return place + marker.size(); };
    if (rest.starts_with(header_end)) {
      header_.state = Header::State::whole;
      header_.end = behind(header_end);
      return true;
    }
    if (is_message_end(rest)) {
      restart();
      at_ = place + rest.find('>') + 1;
      header_.role_end = at_;
    } else if (rest.starts_with(role_begin)) {
      restart();
      header_.role = word(behind(role_begin));
      header_.role_end = at_;
    } else if (rest.starts_with(channel_begin)) {
      header_.channel_at = place;
      header_.channel = word(behind(channel_begin));
      header_.channel_end = at_;
    } else if (rest.starts_with(recipient_begin)) {
      header_.recipient = word(behind(recipient_begin));
    } else if (rest.starts_with(type_begin)) {
      has_type_ = true;
      word(behind(type_begin));
    } else if (is_part_of_marker(rest) || recipient_begin.starts_with(rest)) {
      return false;
    } else {
      read_word(place);
      return true;
    }
    header_.end = at_;
    return true;
  }

  void restart() {
    header_ = {};
    has_type_ = false;
  }

  /// A type, as it seems: where more words follow, it was the first one of the message.
  void read_word(std::size_t place) {
    const bool may_be_type = !has_type_ && !(header_.role.empty() && header_.channel.empty());
    has_type_ = true;
    if (!may_be_type || word(place).empty()) header_.state = Header::State::refuted;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Header header_;
  bool has_type_ = false;
};

/// Gives out the first bytes of a text.
void take(std::string_view& rest, std::size_t bytes, AnswerPart part,
          std::vector<AnswerScanner::Piece>& pieces) {
  const std::string_view text = rest.substr(0, bytes);
  rest.remove_prefix(bytes);
  if (text.empty()) return;
  if (!pieces.empty() && pieces.back().part == part) {
    pieces.back().text += text;
  } else {
    pieces.push_back({std::string(text), part});
  }
}

/// The bytes at the end of a text that a marker may start with.
std::size_t begun_marker(std::string_view text, std::string_view marker) {
  std::size_t bytes = std::min(text.size(), marker.size() - 1);
  while (!text.ends_with(marker.substr(0, bytes))) --bytes;
  return bytes;
}

}  // namespace

AnswerScanner::AnswerScanner(const AnswerStart& start)
    : markers_(start.markers),
      form_(start.calls.form),
      place_(start.may_think ? Place::begin : Place::answer),
      part_(AnswerPart::thought) {
  if (!start.may_think) return;
  push(start.opening);
  held_.clear();
}

/// White space and a marker. What could not become one is what follows the place.
bool AnswerScanner::begin_thought(std::string_view& rest, std::vector<Piece>& pieces) {
  const std::string_view word = trim_left(rest);
  const std::string named = std::string(markers_.begin) + std::string(markers_.name);
  const std::string_view ends = place_ == Place::begin ? markers_.end : markers_.begin;
  for (const std::string_view marker : {std::string_view(named), markers_.begin, ends}) {
    if (word.starts_with(marker)) {
      if (marker != markers_.end) place_ = Place::opened;
      take(rest, rest.size() - word.size() + marker.size(), AnswerPart::marker, pieces);
      return true;
    }
    if (marker.starts_with(word)) return false;
  }
  place_ = place_ == Place::begin ? Place::answer : Place::inside;
  return true;
}

bool AnswerScanner::go_inside(std::string_view& rest, std::vector<Piece>& pieces) {
  if (markers_.has_headers) {
    take(rest, message_end(rest, 0), part_, pieces);
    if (rest.empty() || !is_break(rest)) return false;
    place_ = Place::begin;
    return true;
  }
  const std::size_t end = rest.find(markers_.end);
  if (end == std::string_view::npos) {
    take(rest, rest.size() - begun_marker(rest, markers_.end), part_, pieces);
    return false;
  }
  take(rest, end, part_, pieces);
  take(rest, markers_.end.size(), AnswerPart::marker, pieces);
  place_ = Place::begin;
  return true;
}

bool AnswerScanner::read_header(std::string_view& rest, std::vector<Piece>& pieces) {
  const Header header = HeaderReader(rest).read();
  if (header.state == Header::State::open) return false;
  part_ = header.part();
  const bool is_call = part_ == AnswerPart::call;
  if (is_call && form_ != nullptr) {
    const std::size_t end = message_end(rest, header.end);
    if (!is_ended_ && !is_break(rest.substr(end))) return false;
    const std::string_view message = rest.substr(header.role_end, end - header.role_end);
    const CallReading reading = read_call(message, *form_);
    if (reading.state == CallReading::State::whole &&
        trim(message.substr(reading.length)).empty()) {
      take(rest, header.role_end, AnswerPart::marker, pieces);
      take(rest, message.size(), AnswerPart::call, pieces);
      return true;
    }
    part_ = AnswerPart::answer;
  }
  place_ = Place::inside;
  if (is_call) {
    take(rest, header.role_end, AnswerPart::marker, pieces);
    const std::size_t channel_bytes = header.channel_end - header.channel_at;
    const std::size_t before = channel_bytes == 0 ? 0 : header.channel_at - header.role_end;
    take(rest, before, part_, pieces);
    take(rest, channel_bytes, AnswerPart::marker, pieces);
    take(rest, header.end - header.role_end - before - channel_bytes, part_, pieces);
  } else {
    take(rest, header.end, AnswerPart::marker, pieces);
  }
  return true;
}

bool AnswerScanner::read_answer(std::string_view& rest, std::vector<Piece>& pieces) {
  if (form_ == nullptr || markers_.has_headers) {
    take(rest, rest.size(), AnswerPart::answer, pieces);
    return false;
  }
  const std::size_t begin = rest.find(form_->begin);
  if (begin == std::string_view::npos) {
    take(rest, rest.size() - begun_marker(rest, form_->begin), AnswerPart::answer, pieces);
    return false;
  }
  take(rest, begin, AnswerPart::answer, pieces);
  const CallReading reading = read_call(rest, *form_);
  if (reading.state == CallReading::State::open) return false;
  const bool is_call = reading.state == CallReading::State::whole;
  take(rest, is_call ? reading.length : form_->begin.size(),
       is_call ? AnswerPart::call : AnswerPart::answer, pieces);
  if (form_->begin.empty()) form_ = nullptr;  // that was all of it
  return true;
}

bool AnswerScanner::step(std::string_view& rest, std::vector<Piece>& pieces) {
  switch (place_) {
    case Place::begin:
      return markers_.has_headers ? read_header(rest, pieces) : begin_thought(rest, pieces);
    case Place::opened:
      return begin_thought(rest, pieces);
    case Place::inside:
      return go_inside(rest, pieces);
    case Place::answer:
      break;
  }
  return read_answer(rest, pieces);
}

std::vector<AnswerScanner::Piece> AnswerScanner::push(std::string_view text) {
  std::vector<Piece> pieces;
  const std::string all = std::exchange(held_, {}) + std::string(text);
  std::string_view rest = all;
  while (!rest.empty() && step(rest, pieces)) continue;
  held_ = rest;
  return pieces;
}

bool AnswerScanner::may_answer() const {
  if (place_ == Place::answer) return true;
  if (!markers_.has_headers) return place_ == Place::begin && trim_left(held_).empty();
  return place_ == Place::inside && part_ == AnswerPart::answer;
}

std::vector<AnswerScanner::Piece> AnswerScanner::finish() {
  std::vector<Piece> pieces;
  const std::string all = std::exchange(held_, {});
  std::string_view rest = all;
  is_ended_ = true;
  if (markers_.has_headers && place_ == Place::begin) read_header(rest, pieces);
  const bool is_said = place_ == Place::begin || place_ == Place::answer;
  AnswerPart part = is_said ? AnswerPart::answer : part_;
  if (markers_.has_headers) {
    const bool is_header = place_ == Place::begin && HeaderReader(rest).read().end > 0;
    if (is_header) part = AnswerPart::marker;
  } else if (const std::string_view word = trim_left(rest);
             place_ != Place::answer && word.starts_with(markers_.begin)) {
    part = AnswerPart::thought;  // its name is not whole
    take(rest, rest.size() - word.size() + markers_.begin.size(), AnswerPart::marker, pieces);
  }
  take(rest, rest.size(), part, pieces);
  return pieces;
}

namespace {

/// Texts of one kind, a break between those that do not follow one another.
class Joined {
 public:
  void add(std::string_view text, bool goes_on) {
    if (!goes_on) text = trim_left(text);
    if (!goes_on && !text.empty() && !text_.empty()) text_ += "\n\n";
    text_ += text;
  }
  void trim_end() { text_.resize(text_.find_last_not_of(white_space) + 1); }
  std::string take() { return std::move(text_); }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
};

}  // namespace

SplitAnswer split_answer(std::string_view text, const AnswerStart& start) {
  AnswerScanner scanner(start);
  std::vector<AnswerScanner::Piece> pieces = scanner.push(text);
  for (AnswerScanner::Piece& piece : scanner.finish()) pieces.push_back(std::move(piece));
  Joined thoughts, content, call;
  std::vector<ToolCall> calls;
  bool has_thought = start.may_think && !start.opening.empty();
  bool is_first = !has_thought;  // an answer without any marker is as the model gave it
  std::optional<AnswerPart> last;
  for (const AnswerScanner::Piece& piece : pieces) {
    const bool goes_on = last == piece.part || std::exchange(is_first, false);
    last = piece.part;
    switch (piece.part) {
      case AnswerPart::thought:
        has_thought = true;
        if (!goes_on) thoughts.trim_end();
        thoughts.add(piece.text, goes_on);
        break;
      case AnswerPart::marker:
        has_thought = has_thought || trim_left(piece.text).starts_with(start.markers.begin);
        break;
      case AnswerPart::answer:
        content.add(piece.text, goes_on);
        break;
      case AnswerPart::call:
        if (start.calls.form == nullptr) {
          call.add(piece.text, goes_on || !call.empty());
          break;
        }
        content.trim_end();
        std::ranges::move(calls_in(piece.text, start.calls), std::back_inserter(calls));
        break;
    }
  }
  SplitAnswer split{.reasoning = {},
                    .content = content.take(),
                    .call = std::string(trim_left(call.take())),
                    .calls = std::move(calls)};
  if (has_thought) split.reasoning = std::string(trim(thoughts.take()));
  return split;
}

}  // namespace hyb
