#include "app/batch/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "app/base/texts.h"
#include "app/request/body_fields.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/text/unicode.h"

namespace hyb::app {

LineReader::LineReader(int descriptor, std::string name, std::size_t kept_max)
    : descriptor_(descriptor),
      name_(std::move(name)),
      kept_max_(kept_max),
      buffer_(std::size_t{1} << 18) {}

bool LineReader::fill() {
  for (;;) {
    const ssize_t count =
        ::pread(descriptor_, buffer_.data(), buffer_.size(), static_cast<off_t>(offset_));
    if (count >= 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(count);
      return count > 0;
    }
    if (errno != EINTR) {
      throw Error(ErrorKind::model, name_ + ": can't be read: " + std::strerror(errno));
    }
  }
}

bool LineReader::next(LinePlace& place, std::string& text) {
  place = {.offset = offset_, .bytes = 0, .is_terminated = false};
  text.clear();
  for (;;) {
    if (begin_ == end_ && !fill()) return place.bytes > 0;
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from, '\n', end_ - begin_);
    const std::size_t count =
        found == nullptr ? end_ - begin_
                         : static_cast<std::size_t>(static_cast<const char*>(found) - from);
    text.append(from, std::min(count, kept_max_ - text.size()));
    place.bytes += count;
    place.is_terminated = found != nullptr;
    const std::size_t used = count + (found != nullptr ? 1 : 0);
    begin_ += used;
    offset_ += used;
    if (found != nullptr) return true;
  }
}

namespace {

RequestLine failed(RequestLine line, LineFault fault, std::string message) {
  line.failure = {.fault = fault, .message = std::move(message)};
  return line;
}

LineFault fault_of(const Error& error) {
  const auto* line = dynamic_cast<const LineError*>(&error);
  return line != nullptr ? line->fault : LineFault::request;
}

/// The line's own name for itself. False: there is one that is no name.
bool read_id(const Json& object, const char* key, std::string& id) {
  const Json* found = member_of(object, key);
  if (found == nullptr) return true;
  if (found->is_number_integer()) {
    id = found->dump();
    return true;
  }
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) return false;
  id = found->get<std::string>();
  return true;
}

/// Returns why `url` and `method` of a line can't be answered; empty if they can.
std::string endpoint_problem(const Json& object) {
  const Json* method = member_of(object, "method");
  if (method != nullptr && *method != "POST") return "method: only POST is known";
  const Json* url = member_of(object, "url");
  if (url == nullptr || *url == "/v1/chat/completions" || *url == "/v1/completions") return {};
  const std::string name = url->is_string() ? excerpt(url->get_ref<const std::string&>()) : "";
  const char* advice = name == "/v1/responses"
                           ? ": write its input as messages and its instructions as a system "
                             "message of /v1/chat/completions"
                       : name == "/v1/embeddings" ? ": hyb answers with text and makes none"
                                                  : "";
  return fmt::format("url: only /v1/chat/completions and /v1/completions are answered, not {}{}",
                     name.empty() ? "this" : name, advice);
}

/// Returns what else is wrong with the parts of an OpenAI line; empty if nothing is.
std::string body_problem(const Json& object, RequestForm form) {
  const bool is_chat = form == RequestForm::messages;
  const Json* url = member_of(object, "url");
  if (url != nullptr && is_chat != (*url == "/v1/chat/completions")) {
    return is_chat ? "url: completions take prompt, not messages"
                   : "url: chat completions take messages, not prompt";
  }
  if (member_of(object, "body") == nullptr) return {};
  for (const auto& [name, value] : object.items()) {
    const bool is_data = name == "messages" || name == "prompt" || name == "model";
    if (is_data || !may_be_parameter(name) || asks_nothing(object, name)) continue;
    return name + ": is beside body, not in it";
  }
  return {};
}

/// Endpoints are paths; what else a url names is what a column of a data set is about.
bool is_path(const Json& url) {
  return url.is_string() && url.get_ref<const std::string&>().starts_with('/');
}

RequestLine from_object(Json object, RequestLine line) {
  const char* key = member_of(object, "custom_id") != nullptr ? "custom_id" : "id";
  if (!read_id(object, key, line.custom_id)) {
    return failed(std::move(line), LineFault::request,
                  std::string(key) + " is a text that is not empty");
  }
  const bool is_openai = member_of(object, "body") != nullptr;
  const Json* url = member_of(object, "url");
  if (!is_openai && url != nullptr && !is_path(*url)) {
    line.columns.emplace_back("url");
    object.erase("url");
  }
  if (std::string problem = endpoint_problem(object); !problem.empty()) {
    return failed(std::move(line), LineFault::request, std::move(problem));
  }
  if (is_openai && !object["body"].is_object()) {
    return failed(std::move(line), LineFault::request, "body is an object");
  }
  Json body = is_openai ? object["body"] : object;
  if (!is_openai) {
    for (const char* name : {"custom_id", "id", "url", "method"}) body.erase(name);
  }
  const bool has_messages = member_of(body, "messages") != nullptr;
  if (has_messages == (member_of(body, "prompt") != nullptr)) {
    return failed(std::move(line), LineFault::request,
                  has_messages ? "there are messages and a prompt; which is meant?"
                  : member_of(body, "input") != nullptr
                      ? "input: is of embeddings or responses; only messages and prompts are "
                        "answered"
                      : "there are neither messages nor a prompt");
  }
  const bool is_api = is_openai || member_of(object, "url") != nullptr;
  const RequestForm prompted = is_api ? RequestForm::completion : RequestForm::prompt;
  line.form = has_messages ? RequestForm::messages : prompted;
  if (std::string problem = body_problem(object, line.form); !problem.empty()) {
    return failed(std::move(line), LineFault::request, std::move(problem));
  }
  if (!is_api) {
    for (const auto& [name, value] : body.items()) {
      if (!may_be_parameter(name)) line.columns.push_back(name);
    }
    for (const std::string& name : line.columns) body.erase(name);
  }
  line.body = std::move(body);
  return line;
}

}  // namespace

namespace {

bool is_table(LineFormat format) { return format == LineFormat::csv || format == LineFormat::tsv; }

char separator_of(LineFormat format) { return format == LineFormat::csv ? ',' : '\t'; }

LineFormat guessed_format(std::string_view line, const std::optional<LineTemplate>& filling) {
  if (line[line.find_first_not_of(" \t")] == '{') return LineFormat::jsonl;
  if (!filling || !filling->has_names()) return LineFormat::text;
  return line.find('\t') == std::string_view::npos ? LineFormat::csv : LineFormat::tsv;
}

/// Lines of a table would be prompts, its header the first of them.
void refuse_table_as_text(const std::string& name) {
  const std::string ending = in_small_letters(std::filesystem::path(name).extension().string());
  if (ending != ".csv" && ending != ".tsv") return;
  throw Error(ErrorKind::usage,
              fmt::format("{0}: a table, by its name: --format {1} and --template say what prompts "
                          "its columns make; --format text takes each line as a prompt",
                          name, ending.substr(1)));
}

/// Throws where the format needs a template, or one of another kind.
void check_template(LineFormat format, const LineTemplate* filling) {
  if (filling == nullptr) {
    if (!is_table(format)) return;
    throw Error(ErrorKind::usage,
                "--format csv and tsv: --template says what prompt the columns make");
  }
  if (filling->has_names() == (format != LineFormat::text)) return;
  throw Error(ErrorKind::usage,
              filling->has_names()
                  ? "--template: lines of text have no names, {} is all of a line; --format csv or "
                    "tsv reads the first line as a header of columns"
                  : "--template: {} is a line of text; here say {NAME}, or --format text");
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

namespace {

std::string prompt_of(std::string_view line, LineFormat format, const LineTemplate* filling) {
  if (filling == nullptr) return std::string(line);
  if (format == LineFormat::text) return filling->of_text(line);
  return filling->of_fields(fields_of(line, separator_of(format)));
}

/// Builds the request that a template makes of a line.
RequestLine from_filled(Json object, RequestLine line, const LineTemplate& filling) {
  if (std::string missing = filling.missing_member(object); !missing.empty()) {
    return failed(std::move(line), LineFault::member, std::move(missing));
  }
  try {
    filling.fill_object(object);
  } catch (const Error& error) {
    return failed(std::move(line), fault_of(error), error.what());
  }
  RequestLine filled = from_object(std::move(object), std::move(line));
  filled.columns.clear();  // that it leaves some out is known
  return filled;
}

}  // namespace

RequestLine parse_request_line(std::string_view line, std::int64_t number, LineFormat format,
                               const LineTemplate* filling) {
  RequestLine parsed{.custom_id = fmt::format("line-{}", number)};
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::string source = fmt::format("line {}", number);
  if (format != LineFormat::jsonl) {
    try {
      check_utf8(line, source);
      parsed.body["prompt"] = prompt_of(line, format, filling);
    } catch (const Error& error) {
      return failed(std::move(parsed), fault_of(error), error.what());
    }
    return parsed;
  }
  try {
    Json object = parse_json(line, source);
    if (!object.is_object()) {
      return failed(std::move(parsed), LineFault::request, source + " is no JSON object");
    }
    if (filling == nullptr) return from_object(std::move(object), std::move(parsed));
    return from_filled(std::move(object), std::move(parsed), *filling);
  } catch (const Error& error) {
    return failed(std::move(parsed), LineFault::json, error.what());
  }
}

RequestLine too_long_line(std::uint64_t bytes, std::int64_t number) {
  return failed(
      {.custom_id = fmt::format("line-{}", number)}, LineFault::length,
      fmt::format("line {} has {} bytes, at most {} are read", number, bytes, line_bytes_max));
}

namespace {

[[noreturn]] void fail(const std::string& name, const std::string& text) {
  throw Error(ErrorKind::model, name + ": " + text);
}

constexpr std::size_t start_bytes = 4096;  ///< of a file, that show what it is

struct Magic {
  std::string_view bytes;
  const char* kind;
  const char* tool;  ///< unpacks it; null: nothing in it is a request
};

/// Files that people have next to their prompts.
constexpr std::array magics = {
    Magic{"\x1f\x8b", "compressed (gzip)", "gunzip -c"},
    Magic{"\x28\xb5\x2f\xfd", "compressed (zstd)", "zstd -dc"},
    Magic{"\xfd\x37zXZ", "compressed (xz)", "xz -dc"},
    Magic{"BZh", "compressed (bzip2)", "bunzip2 -c"},
    Magic{"PK\x03\x04", "a zip archive", "unzip -p"},
    Magic{"GGUF", "a GGUF model", nullptr},
    Magic{"PAR1", "a Parquet file", nullptr},
    Magic{"%PDF-", "a PDF", nullptr},
};

/// The header's length, then JSON.
bool looks_like_safetensors(std::string_view start) {
  return start.size() > 9 && start.substr(4, 4) == std::string_view("\0\0\0\0", 4) &&
         start.substr(8, 2) == "{\"";
}

/// A control byte that text has no use for, or one that UTF-8 never has.
bool is_binary(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  const bool is_used = byte == 0x1b || (byte >= 0x07 && byte <= 0x0d);
  return (byte < 0x20 && !is_used) || byte >= 0xf8;
}

/// Throws for what holds no lines of UTF-8, as its first bytes show.
void refuse_foreign(const std::string& name, std::string_view start) {
  const bool is_text = std::none_of(start.begin(), start.end(), is_binary);
  for (const Magic& magic : magics) {
    // A prompt may begin with "GGUF".
    if (is_text || !start.starts_with(magic.bytes)) continue;
    if (magic.tool == nullptr) fail(name, fmt::format("is {}, not a file of requests", magic.kind));
    fail(name, fmt::format("is {}; unpack it first, or: {} {} | hyb batch -", magic.kind,
                           magic.tool, name));
  }
  if (looks_like_safetensors(start)) {
    fail(name, "is a safetensors file, not a file of requests");
  }
  refuse_wide(start, name);
  if (start.find('\0') != std::string_view::npos) {
    fail(name, "is a binary file: there are zero bytes in it, and lines of text have none");
  }
}

/// Lines are read twice, which a pipe can't do.
File spool(int pipe, const std::string& name, const std::filesystem::path& scratch) {
  std::string path = (scratch / ".hyb-stdin-XXXXXX").string();
  const Descriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.is_open()) {
    throw Error(ErrorKind::runtime,
                fmt::format("{}: can't keep {} there: {}", path, name, std::strerror(errno)));
  }
  ::unlink(path.c_str());
  std::array<char, 65536> piece;
  for (std::string start;;) {
    const ssize_t count = ::read(pipe, piece.data(), piece.size());
    if (count == 0) return File(fmt::format("/proc/self/fd/{}", file.number()));
    if (count > 0) {
      const std::string_view text(piece.data(), static_cast<std::size_t>(count));
      if (start.size() < start_bytes) {  // what does not end, such as /dev/zero, is refused early
        start += text.substr(0, start_bytes - start.size());
        if (start.size() == start_bytes) refuse_foreign(name, start);
      }
      const int code = write_all(file.number(), text);
      if (code == 0) continue;
      throw Error(ErrorKind::runtime,
                  fmt::format("keeping {} in a file: {}", name, std::strerror(code)));
    }
    if (errno != EINTR) {
      throw Error(ErrorKind::runtime,
                  fmt::format("{} can't be read: {}", name, std::strerror(errno)));
    }
  }
}

std::string line_text(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

InputFile InputFile::open(const std::string& name, const std::filesystem::path& scratch) {
  InputFile input = opened(name, scratch);
  refuse_pointer(input.file_);
  refuse_foreign(input.name_, line_text(input.file_, 0,
                                        std::min<std::uint64_t>(input.file_.size(), start_bytes)));
  input.hash_ = input.hash_of_first(input.file_.size());
  return input;
}

InputFile InputFile::opened(const std::string& name, const std::filesystem::path& scratch) {
  if (name == "-" || name == "/dev/stdin") {
    return {"stdin", spool(STDIN_FILENO, "stdin", scratch), true};
  }
  if (!is_pipe(name)) return {name, File(std::filesystem::path(name)), false};
  const Descriptor pipe(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pipe.is_open()) fail(name, std::string("can't be read: ") + std::strerror(errno));
  return {name, spool(pipe.number(), name, scratch), true};
}

bool InputFile::has_changed() const {
  try {
    file_.check_unchanged();
    return false;
  } catch (const Error&) {  // an expected outcome here
    return true;
  }
}

bool InputFile::has_more_lines() const {
  if (is_piped_) return false;
  try {
    const InputFile now(name_, File(std::filesystem::path(name_)), false);
    return now.begins_with(file_.size(), hex(hash_));
  } catch (const Error&) {  // deleted, or changing as it is read
    return false;
  }
}

/// A whole document in JSON is one request at most, or an array of them: no line of it is.
void InputFile::refuse_document(std::string_view first_line, LineFormat format) const {
  const auto solid = [](std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
  };
  const std::string_view text = solid(first_line);
  const std::string_view inside = solid(text.substr(1));
  const bool is_alone = inside.empty();
  const auto is_array = [&] {
    if (text.front() != '[') return false;
    if (is_alone || format == LineFormat::jsonl || inside.front() == '{') return true;
    return inside.front() == '"' && Json::accept(text);  // else a prompt may begin so
  };
  if (is_array()) {
    fail(name_, "is a JSON array, and hyb reads one JSON object per line: jq -c '.[]' " + name_ +
                    " makes them; --format text takes its lines as prompts");
  }
  if (text.front() == '{' && is_alone) {
    fail(name_, "is one JSON object over many lines, and hyb reads one per line: jq -c . " + name_ +
                    " makes them");
  }
}

Hash128 InputFile::hash_of_first(std::uint64_t bytes) const {
  Hasher hasher;
  std::vector<char> piece(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t count = std::min<std::uint64_t>(piece.size(), bytes - at);
    file_.read(at, std::as_writable_bytes(std::span(piece.data(), count)));
    hasher.add({piece.data(), count});
    at += count;
  }
  return hasher.value();
}

bool InputFile::begins_with(std::uint64_t bytes, const std::string& hash) const {
  if (bytes == 0 || bytes >= file_.size()) return false;
  const std::string around =
      line_text(file_, bytes - 1, std::min<std::uint64_t>(3, file_.size() - (bytes - 1)));
  const bool is_whole = around[0] == '\n' || around[1] == '\n' || around.substr(1) == "\r\n";
  return is_whole && hex(hash_of_first(bytes)) == hash;
}

/// Takes the line as the table's header if it has none yet, and says whether it did.
bool InputFile::take_header(std::string_view text, std::int64_t number) {
  if (!is_table(format_) || header_number_ > 0) return false;
  if (text.size() > line_bytes_max) fail(name_, "its header is too long");
  if (text.ends_with('\r')) text.remove_suffix(1);
  check_utf8(text, name_);
  filling_->set_header(fields_of(text, separator_of(format_)));
  header_number_ = number;
  return true;
}

void InputFile::scan(std::optional<LineFormat> format, std::optional<LineTemplate> filling) {
  filling_ = std::move(filling);
  format_ = format.value_or(LineFormat::jsonl);
  LineReader reader(file_.descriptor(), name_, line_bytes_max + 1);
  LinePlace place;
  std::string text;
  const bool is_guess = !format;
  for (std::uint64_t number = 1; reader.next(place, text); ++number) {
    if (number > std::numeric_limits<std::uint32_t>::max()) fail(name_, "has too many lines");
    if (number == 1 && text.starts_with(byte_order_mark)) {
      text.erase(0, byte_order_mark.size());
      place.offset += byte_order_mark.size();
      place.bytes -= byte_order_mark.size();
    }
    line_count_ = static_cast<std::int64_t>(number);
    if (is_blank(text)) continue;
    const std::size_t first = text.find_first_not_of(" \t");
    if (!format) {
      format = guessed_format(text, filling_);
      if (*format == LineFormat::text) refuse_table_as_text(name_);
    }
    format_ = *format;
    if (lines_.empty() && header_number_ == 0) {
      check_template(format_, filling_ ? &*filling_ : nullptr);
    }
    if (take_header(text, line_count_)) continue;
    if (lines_.empty() && !is_table(format_) && (is_guess || *format == LineFormat::jsonl)) {
      refuse_document(text, *format);
    }
    if (is_guess && *format == LineFormat::text && text.compare(first, 2, "{\"") == 0) {
      throw Error(ErrorKind::usage,
                  fmt::format("{}: line {} looks like JSON and the first line does not; say which "
                              "with --format jsonl or --format text",
                              name_, number));
    }
    const RequestLine line = place.bytes > line_bytes_max ? too_long_line(place.bytes, line_count_)
                                                          : parse(text, line_count_);
    if (lines_.empty() && line.failure && line.failure->fault == LineFault::member) {
      throw Error(ErrorKind::usage, line.failure->message);
    }
    if (line.failure && line.failure->fault == LineFault::quote) {
      // What follows the line is a part of it.
      fail(name_, fmt::format("line {}: {}", number, line.failure->message));
    }
    lines_.push_back({.id = hash_of(line.custom_id),
                      .offset = place.offset,
                      .bytes = static_cast<std::uint32_t>(
                          std::min<std::uint64_t>(place.bytes, line_bytes_max + 1)),
                      .number = static_cast<std::uint32_t>(number)});
  }
  refuse_duplicates();
}

void InputFile::refuse_duplicates() const {
  std::vector<std::uint32_t> order(lines_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lines_[a].id < lines_[b].id; });
  const auto same = std::adjacent_find(
      order.begin(), order.end(),
      [&](std::uint32_t a, std::uint32_t b) { return lines_[a].id == lines_[b].id; });
  if (same == order.end()) return;
  const InputLine& one = lines_[*same];
  const InputLine& other = lines_[*(same + 1)];
  throw Error(ErrorKind::usage,
              fmt::format("{}: lines {} and {} have the same custom_id {}; results could not be "
                          "distinguished",
                          name_, one.number, other.number, Json(read(one).custom_id).dump()));
}

void InputFile::keep_lines(std::span<const std::uint32_t> kept) {
  for (std::size_t i = 0; i < kept.size(); ++i) lines_[i] = lines_[kept[i]];
  lines_.resize(kept.size());
}

RequestLine InputFile::read(const InputLine& line) const {
  file_.check_unchanged();
  if (line.bytes > line_bytes_max) return too_long_line(line.bytes, line.number);
  return parse(line_text(file_, line.offset, line.bytes), line.number);
}

}  // namespace hyb::app
