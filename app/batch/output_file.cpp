#include "app/batch/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "app/ui/text.h"
#include "core/base/error.h"

namespace hyb::app {

std::optional<ResultMark> read_result(std::string_view line) {
  try {
    const Json result =
        parse_json(line, "result", {.bytes_max = std::size_t{1} << 30, .depth_max = 64});
    if (!result.is_object() || !result.contains("response") || !result.contains("error")) {
      return std::nullopt;
    }
    const auto id = result.find("custom_id");
    if (id == result.end() || !id->is_string()) return std::nullopt;
    return ResultMark{.id = hash_of(id->get_ref<const std::string&>()),
                      .failed = !result["error"].is_null()};
  } catch (const Error&) {  // torn: an expected outcome
    return std::nullopt;
  }
}

namespace {

constexpr std::size_t result_bytes_max = std::size_t{1} << 30;

[[noreturn]] void fail(ErrorKind kind, const std::filesystem::path& path, const std::string& text) {
  throw Error(kind, path.string() + ": " + text);
}

[[noreturn]] void fail_with(const std::filesystem::path& path, const char* doing, int code) {
  fail(ErrorKind::runtime, path, fmt::format("{}: {}", doing, std::strerror(code)));
}

[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const char* doing) {
  fail_with(path, doing, errno);
}

/// Follows links, also to what does not exist yet.
std::filesystem::path resolved(const std::filesystem::path& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real;
}

/// nullopt: the path could not be looked at; errno has the reason.
std::optional<bool> names(const std::filesystem::path& path, const struct stat& file) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) {
    return there.st_ino == file.st_ino && there.st_dev == file.st_dev;
  }
  return errno == ENOENT || errno == ENOTDIR ? std::optional(false) : std::nullopt;
}

/// Opens, locks and looks; the lock is taken for every output, so that two runs never mix.
Descriptor open_locked(const std::filesystem::path& path, int flags) {
  // O_NONBLOCK: a FIFO is refused below instead of waited for.
  Descriptor file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags, 0666));
  if (!file.is_open()) fail_with_errno(path, "can't be written");
  struct stat is {};
  if (::fstat(file.number(), &is) != 0) fail_with_errno(path, "can't be looked at");
  if (!S_ISREG(is.st_mode)) {
    fail(ErrorKind::usage, path,
         "is not a regular file: results must stay there to be resumed; -o - writes to stdout");
  }
  if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail_with_errno(path, "can't be locked");
    fail(ErrorKind::runtime, path, "another hyb batch writes it");
  }
  const std::optional<bool> is_named = names(path, is);
  if (!is_named) fail_with_errno(path, "can't be looked at");
  if (!*is_named) fail(ErrorKind::runtime, path, "was replaced just now; start again");
  return file;
}

int write_once(int descriptor, std::string_view text, std::size_t& written) {
  for (;;) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    written = static_cast<std::size_t>(count);
    return 0;
  }
}

/// The name of a new file outlives a crash of the machine.
void sync_name(const std::filesystem::path& path) {
  const int code = sync_folder(path.parent_path());
  if (code != 0) fail_with(path, "its folder can't be synced", code);
}

}  // namespace

OutputFile OutputFile::open(const std::filesystem::path& path) {
  const std::filesystem::path real = resolved(path);
  OutputFile output(real, open_locked(real, O_CREAT));
  struct stat is {};
  if (::fstat(output.descriptor(), &is) != 0) fail_with_errno(real, "can't be looked at");
  output.bytes_ = output.synced_bytes_ = static_cast<std::uint64_t>(is.st_size);
  if (output.is_empty()) sync_name(real);
  return output;
}

OutputFile OutputFile::stream(int descriptor, const std::string& name) {
  OutputFile output(name, Descriptor());
  output.stream_ = descriptor;
  return output;
}

std::vector<ResultMark> OutputFile::recover(bool skip_foreign) {
  std::vector<ResultMark> marks;
  if (is_stream()) return marks;
  LineReader reader(descriptor(), path_.string(), result_bytes_max);
  LinePlace place;
  std::string text;
  for (std::int64_t number = 1; reader.next(place, text); ++number) {
    const auto mark = read_result(text);
    if (!place.is_terminated) {
      cut(mark ? place.offset + place.bytes : place.offset);
      if (mark && append("\n") != 0) fail_with_errno(path_, "can't be written");
      if (mark) marks.push_back(*mark);
      break;
    }
    if (mark) {
      marks.push_back(*mark);
    } else if (skip_foreign) {
      ++foreign_lines_;
    } else {
      fail(ErrorKind::model, path_,
           fmt::format(
               "line {} is not a result of hyb batch; move the file away, or skip such lines "
               "with --force",
               number));
    }
  }
  return marks;
}

std::vector<ResultMark> OutputFile::recover_lines(const InputFile& input, ResultFormat format) {
  std::vector<ResultMark> marks;
  // Lines of the input so far: the header of TSV comes before the first where that is none.
  const std::int64_t above = format == ResultFormat::tsv && input.header_number() == 0 ? 1 : 0;
  std::int64_t count = -above;
  auto next = input.lines().begin();
  LineReader reader(descriptor(), path_.string(), result_bytes_max);
  LinePlace place;
  std::string text;
  while (!is_stream() && reader.next(place, text)) {
    if (!place.is_terminated) {
      cut(place.offset);
      break;
    }
    ++count;
    const bool is_result = next != input.lines().end() && next->number == count;
    // A line of text names no request, and may be any one's result.
    if (is_result &&
        (format == ResultFormat::text || is_result_of(text, input.read(*next).custom_id))) {
      marks.push_back({.id = next->id, .failed = is_failed_line(text, format)});
      ++next;
    } else if (is_result || text + "\n" != lines_between(input, format, count - 1, count + 1) ||
               count > input.line_count()) {
      if (count == 0) fail(ErrorKind::model, path_, "begins without a header; move the file away");
      fail(ErrorKind::model, path_,
           fmt::format("line {} is not of line {} of {}; move the file away", count + above, count,
                       input.name()));
    }
  }
  const std::int64_t end =
      next == input.lines().end() ? input.line_count() + 1 : std::int64_t{next->number};
  const std::string more = lines_between(input, format, count, end);
  if (const int code = more.empty() ? 0 : append(more)) fail_with(path_, "can't be written", code);
  return marks;
}

void OutputFile::drop_failed() {
  std::filesystem::path beside = path_;
  beside += ".new";
  std::filesystem::path name = beside;  // before there is a file: memory may end here
  OutputFile kept(std::move(name), open_locked(beside, O_CREAT));
  try {
    if (::ftruncate(kept.descriptor(), 0) != 0) fail_with_errno(beside, "can't be emptied");
    copy_answered(kept);
    if (::rename(beside.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "can't be replaced");
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_name(path_);
  kept.path_ = path_;
  kept.foreign_lines_ = foreign_lines_;
  *this = std::move(kept);
}

/// The results that have not failed, and what are none.
void OutputFile::copy_answered(OutputFile& kept) {
  LineReader reader(descriptor(), path_.string(), result_bytes_max);
  LinePlace place;
  std::string text;
  while (reader.next(place, text)) {
    const auto mark = read_result(text);
    if (mark && mark->failed) continue;
    text += '\n';
    if (const int code = kept.append(text)) fail_with(kept.path_, "can't be written", code);
  }
  kept.sync();
}

void OutputFile::cut(std::uint64_t bytes) {
  if (::ftruncate(descriptor(), static_cast<off_t>(bytes)) != 0) {
    fail_with_errno(path_, "a torn line can't be cut off");
  }
  bytes_ = bytes;
  is_torn_ = false;
}

std::string OutputFile::interference() const {
  if (is_stream()) return {};
  struct stat is {};
  if (::fstat(descriptor(), &is) != 0) return {};
  if (is.st_nlink == 0) {
    return "was deleted while results were written to it, and they are lost; the same command "
           "starts from the beginning";
  }
  if (!names(path_, is).value_or(true)) {  // the next line is another occasion to look
    return "was moved or replaced while results were written to it; they are in the file that was "
           "moved. When it is back in its place the same command goes on";
  }
  const auto bytes = static_cast<std::uint64_t>(is.st_size);
  if (bytes < bytes_) {
    return fmt::format(
        "was cut to {} bytes while results were written to it, {} were there; the same command "
        "answers again what is missing",
        bytes, bytes_);
  }
  if (bytes > bytes_ && !is_torn_) {
    return fmt::format(
        "was written to by another program: it has {} bytes, {} are results of this run; when "
        "lines that are not results are removed, the same command goes on",
        bytes, bytes_);
  }
  return {};
}

void OutputFile::refuse_interference() const {
  if (const std::string what = interference(); !what.empty()) fail(ErrorKind::runtime, path_, what);
}

int OutputFile::append_to_stream(std::string_view line) {
  if (is_closed_) return EPIPE;
  const bool is_shown = ::isatty(descriptor()) == 1;
  const int reason = write_all(descriptor(), is_shown ? sanitized(line) : line);
  is_closed_ = reason == EPIPE;
  if (reason == 0) bytes_ += line.size();
  return reason;
}

int OutputFile::append(std::string_view line) {
  if (is_stream()) return append_to_stream(line);
  refuse_interference();
  if (is_torn_) cut(bytes_);
  std::size_t written = 0;
  const int reason = write_once(descriptor(), line, written);
  if (reason != 0) return reason;
  if (written < line.size()) {  // the disk is full, or the next write fails with the reason
    std::size_t more = 0;
    const int rest = write_once(descriptor(), line.substr(written), more);
    if (rest != 0 || written + more < line.size()) {
      is_torn_ = true;
      cut(bytes_);
      return rest != 0 ? rest : ENOSPC;
    }
  }
  bytes_ += line.size();
  return 0;
}

void OutputFile::sync() {
  if (is_stream()) return;
  synced_ = looked_ = Clock::now();
  refuse_interference();
  if (bytes_ == synced_bytes_) return;
  if (::fdatasync(descriptor()) == 0) {
    synced_bytes_ = bytes_;
    return;
  }
  // What the system failed to write it may have dropped: only the lines before are sure.
  const int reason = errno;
  cut(synced_bytes_);
  fail_with(path_, "results did not get to the disk", reason);
}

void OutputFile::sync_if_due() {
  using namespace std::chrono_literals;
  const Clock::time_point now = Clock::now();
  if (now - synced_ >= 1s) {
    sync();
  } else if (now - looked_ >= 200ms) {
    looked_ = now;
    refuse_interference();
  }
}

void ResultWriter::put(std::int64_t place, std::string line, bool failed) {
  Result result{.line = std::move(line), .failed = failed};
  if (!options_.ordered) {
    hand_over(std::move(result));
    return;
  }
  early_.emplace(place, std::move(result));
  while (!early_.empty() && early_.begin()->first == turns()) {
    Result next = std::move(early_.begin()->second);
    early_.erase(early_.begin());
    hand_over(std::move(next));
  }
}

bool ResultWriter::may_write() { return !options_.may_write || options_.may_write(); }

void ResultWriter::hand_over(Result result) {
  if (held_.empty() && may_write()) {
    write(result);
    return;
  }
  held_bytes_ += result.line.size();
  held_.push_back(std::move(result));
  if (held_bytes_ > options_.held_bytes_max) wait_for_permission();
}

void ResultWriter::wait_for_permission() {
  while (!held_.empty() && !may_write() && !options_.is_stopped()) {
    output_.sync_if_due();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  poll();
}

void ResultWriter::poll() {
  while (!held_.empty() && may_write()) {
    const Result result = std::move(held_.front());
    held_.pop_front();
    held_bytes_ -= result.line.size();
    write(result);
  }
  output_.sync_if_due();
}

void ResultWriter::finish() {
  wait_for_permission();
  output_.sync();
}

void ResultWriter::write(const Result& result) {
  using namespace std::chrono_literals;
  const auto give_up = std::chrono::steady_clock::now() + options_.patience;
  std::chrono::milliseconds pause = 50ms;
  for (bool is_first = true;; is_first = false) {
    const int reason = output_.append(result.line);
    if (reason == 0) break;
    if (output_.is_closed()) return;
    const std::string problem =
        fmt::format("{}: can't be written: {}", output_.path().string(), std::strerror(reason));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        give_up - std::chrono::steady_clock::now());
    // A stream may have taken a part of the line: a second try would repeat it.
    if (left <= 0ms || output_.is_stream() || options_.is_stopped()) {
      throw Error(ErrorKind::runtime, problem);
    }
    if (is_first) options_.warn(fmt::format("{}; trying again", problem));
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min<std::chrono::milliseconds>(pause * 2, 2s);
  }
  ++written_;
  if (result.failed) ++failed_;
}

}  // namespace hyb::app
