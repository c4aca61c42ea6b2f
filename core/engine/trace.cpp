#include "core/engine/trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json.h"

namespace hyb {
namespace {

constexpr std::uint64_t read_bytes = std::uint64_t{1} << 20;

/// Reads the fields of a line; errors name the place and the broken rule.
class LineFields {
 public:
  LineFields(const std::string& line, std::string place)
      : place_(std::move(place)), json_(parse_json(line, place_)) {
    if (!json_.is_object()) fail("a request is a JSON object", shown(json_));
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end())
      fail("every request has t, session, turn, prompt and output; this one lacks", key);
    return *found;
  }

  double time() const {
    const Json& value = at("t");
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
      fail("t is a number of seconds, 0 or more", shown(value));
    }
    return value.get<double>();
  }

  std::string session() const {
    const Json& value = at("session");
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_number_integer()) fail("session is a text or an integer", shown(value));
    return to_text(value);
  }

  std::string model() const {
    const auto found = json_.find("model");
    return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
  }

  std::int32_t turn() const {
    const Json& value = at("turn");
    if (!is_integer(value, 0, 1 << 30)) fail("turn is an integer, 0 or more", shown(value));
    return value.get<std::int32_t>();
  }

  std::vector<Segment> segments(const char* key) const {
    const Json& list = at(key);
    if (!list.is_array()) fail(fmt::format("{} is a list of [segment, length]", key), shown(list));
    std::vector<Segment> segments;
    segments.reserve(list.size());
    for (const Json& pair : list) {
      if (!pair.is_array() || pair.size() != 2 || !is_integer(pair[0], 0, segment_max) ||
          !is_integer(pair[1], 1, TraceReader::request_tokens_max)) {
        fail(fmt::format("{} is a list of [segment, length], the segment an integer from 0 on, the "
                         "length from 1 to {}",
                         key, TraceReader::request_tokens_max),
             shown(pair));
      }
      segments.push_back({pair[0].get<std::int64_t>(), pair[1].get<std::int32_t>()});
    }
    return segments;
  }

  [[noreturn]] void fail(const std::string& rule, const std::string& value) const {
    throw Error(ErrorKind::model, fmt::format("{}: {}: {}", place_, rule, value));
  }

 private:
  static constexpr std::int64_t segment_max = std::numeric_limits<std::int64_t>::max();

  static bool is_integer(const Json& value, std::int64_t min, std::int64_t max) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max))
      return false;
    return value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max;
  }

  static std::string shown(const Json& value) { return to_text(value).substr(0, 80); }

  std::string place_;
  Json json_;
};

/// A mix of 64 bits (Steele, Lea and Flood 2014, the finaliser of SplitMix).
std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

void append_tokens(std::span<const Segment> segments, std::vector<TokenId>& tokens) {
  for (const Segment& segment : segments) {
    const std::uint64_t seed = mixed(static_cast<std::uint64_t>(segment.id) + 1);
    for (std::int32_t i = 0; i < segment.length; ++i) {
      const std::uint64_t bits = mixed(seed + 0x9e3779b97f4a7c15U * static_cast<std::uint64_t>(i));
      tokens.push_back(TokenId{static_cast<std::int32_t>(bits >> 33)});
    }
  }
}

template <typename Pieces>
std::string text_of_pieces(const Pieces& pieces) {
  std::string text = "[";
  for (const auto& piece : pieces) {
    fmt::format_to(std::back_inserter(text), "{}[{},{}]", text.size() > 1 ? "," : "", piece.segment,
                   piece.length);
  }
  return text + "]";
}

}  // namespace

std::int64_t tokens_of(std::span<const Segment> segments) {
  std::int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.length;
  return tokens;
}

RequestTokens::RequestTokens(const ReplayRequest& from)
    : request(&from), prompt_length(static_cast<std::int32_t>(tokens_of(from.prompt))) {
  all.reserve(static_cast<std::size_t>(prompt_length + tokens_of(from.output)));
  append_tokens(from.prompt, all);
  append_tokens(from.output, all);
}

TraceReader::TraceReader(const std::filesystem::path& path) : file_(path) {}

bool TraceReader::next_line(std::string& line) {
  for (std::size_t searched = begin_;;) {
    const std::size_t end = buffer_.find('\n', searched);
    const bool is_last = end == std::string::npos && offset_ == file_.size();
    if (end != std::string::npos || is_last) {
      if (is_last && begin_ == buffer_.size()) return false;
      line = buffer_.substr(begin_, is_last ? std::string::npos : end - begin_);
      begin_ = is_last ? buffer_.size() : end + 1;
      ++line_number_;
      return true;
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (searched > line_bytes_max) {
      throw Error(ErrorKind::model,
                  fmt::format("{}:{}: a line has at most {} bytes", file_.path().string(),
                              line_number_ + 1, line_bytes_max));
    }
    const std::uint64_t count = std::min(read_bytes, file_.size() - offset_);
    buffer_.resize(searched + count);
    file_.read(offset_, std::as_writable_bytes(std::span(buffer_).subspan(searched)));
    offset_ += count;
  }
}

bool TraceReader::next(ReplayRequest& request) {
  std::string line;
  do {
    if (!next_line(line)) return false;
  } while (line.find_first_not_of(" \t\r") == std::string::npos);
  const LineFields fields(line, fmt::format("{}:{}", file_.path().string(), line_number_));
  request = {.time_s = fields.time(),
             .session = fields.session(),
             .turn = fields.turn(),
             .prompt = fields.segments("prompt"),
             .output = fields.segments("output"),
             .model = fields.model()};
  if (request.prompt.empty()) fields.fail("a prompt has at least one token", "[]");
  const std::int64_t tokens = tokens_of(request.prompt) + tokens_of(request.output);
  if (tokens > request_tokens_max) {
    fields.fail(fmt::format("a request has at most {} tokens", request_tokens_max),
                std::to_string(tokens));
  }
  if (request.time_s < time_s_) {
    fields.fail(
        fmt::format("requests are in order of arrival; the previous one came at {}", time_s_),
        std::to_string(request.time_s));
  }
  time_s_ = request.time_s;
  return true;
}

std::vector<ReplayRequest> read_trace(const std::filesystem::path& path) {
  TraceReader reader(path);
  std::vector<ReplayRequest> requests;
  for (ReplayRequest request; reader.next(request);) requests.push_back(std::move(request));
  if (requests.empty()) {
    throw Error(ErrorKind::model, fmt::format("{}: the trace has no request", path.string()));
  }
  return requests;
}

void TraceRecorder::submitted(RequestId request, std::int32_t choices,
                              std::span<const TokenId> prompt,
                              std::chrono::steady_clock::time_point now) {
  if (begin_ == std::chrono::steady_clock::time_point{}) begin_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  Point end;
  const std::vector<Piece> pieces = extend(end, prompt, false);
  const std::string segments = text_of_pieces(pieces);
  for (std::int32_t choice = 0; choice < choices; ++choice) {
    const Turn turn = turn_of(pieces, end);
    const std::string model = std::exchange(model_, {});
    lines_.push_back(
        {.request = request,
         .choice = choice,
         .text = fmt::format(R"({{{}"t":{:.3f},"session":"{}","turn":{},"prompt":{},"output":)",
                             model.empty() ? "" : fmt::format("\"model\":{},", to_text(model)),
                             seconds, turn.session, turn.turn, segments),
         .prompt_end = end});
  }
}

void TraceRecorder::ended(RequestId request, std::int32_t choice, std::span<const TokenId> answer) {
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.request == request && line.choice == choice;
  });
  if (found == lines_.end()) return;
  found->text += text_of_pieces(extend(found->prompt_end, answer, true)) + "}\n";
  found->is_complete = true;
  for (; !lines_.empty() && lines_.front().is_complete; lines_.pop_front()) {
    *out_ << lines_.front().text;
  }
  out_->flush();
}

/// The pieces for these tokens after `from`, which moves to their end. An answer starts with a
/// segment of its own: a piece has no offset, so it cannot continue within the prompt's.
std::vector<TraceRecorder::Piece> TraceRecorder::extend(Point& from,
                                                        std::span<const TokenId> tokens,
                                                        bool is_answer) {
  std::vector<Piece> pieces;
  bool may_go_on = !is_answer;
  while (!tokens.empty()) {
    const Segment& segment = segments_[static_cast<std::size_t>(from.segment)];
    const auto rest = std::span(segment.tokens).subspan(static_cast<std::size_t>(from.length));
    const auto differs = std::mismatch(rest.begin(), rest.end(), tokens.begin(), tokens.end());
    const auto common = static_cast<std::int32_t>(differs.first - rest.begin());
    if (may_go_on && common > 0) {
      pieces.push_back({from.segment, from.length + common});
      from.length += common;
      tokens = tokens.subspan(static_cast<std::size_t>(common));
      continue;
    }
    const auto next = static_cast<std::int32_t>(segments_.size());
    const auto [child, is_new] = segments_[static_cast<std::size_t>(from.segment)].children.emplace(
        std::pair(from.length, tokens.front()), next);
    if (is_new) segments_.emplace_back().tokens.assign(tokens.begin(), tokens.end());
    from = {.segment = child->second, .length = 0};
    may_go_on = true;
  }
  return pieces;
}

/// The turn after that of the longest earlier prompt that this one continues, or the first turn of
/// a new session.
TraceRecorder::Turn TraceRecorder::turn_of(std::span<const Piece> prompt, Point prompt_end) {
  const Turn* earlier = nullptr;
  for (const Piece& piece : prompt) {
    const auto from = prompt_ends_.lower_bound(Point{piece.segment, 1});
    for (auto at = from; at != prompt_ends_.end(); ++at) {
      const Point point = at->first;
      if (point.segment != piece.segment || point.length > piece.length) break;
      if (point != prompt_end) earlier = &at->second;
    }
  }
  const Turn turn = earlier != nullptr
                        ? Turn{.session = earlier->session, .turn = earlier->turn + 1}
                        : Turn{.session = sessions_++, .turn = 1};
  prompt_ends_.insert_or_assign(prompt_end, turn);
  return turn;
}

}  // namespace hyb
