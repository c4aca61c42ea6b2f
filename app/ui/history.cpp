#include "app/ui/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "core/base/log.h"
#include "core/io/descriptor.h"
#include "core/io/descriptor_io.h"
#include "core/text/utf8_stream.h"

namespace hyb::app {
namespace {

constexpr std::size_t file_bytes_max = std::size_t{4} << 20;

// Non-blocking: a FIFO in the file's place must not make us wait.
Descriptor open_file(const std::filesystem::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR));
}

std::string encoded(std::string_view entry) {
  std::string line;
  for (const char letter : entry) {
    if (letter == '\\') {
      line += "\\\\";
    } else if (letter == '\n') {
      line += "\\n";
    } else {
      line += letter;
    }
  }
  return line += '\n';
}

std::string decoded(std::string_view line) {
  std::string entry;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool is_escape = line[at] == '\\' && at + 1 < line.size();
    if (is_escape) ++at;
    entry += is_escape && line[at] == 'n' ? '\n' : line[at];
  }
  return entry;
}

/// The end of the file, or the reason why it cannot be read.
std::string read_tail(const std::filesystem::path& path, std::string& text) {
  const Descriptor file = open_file(path, O_RDONLY);
  struct stat about {};
  if (!file.is_open()) return errno == ENOENT ? "" : std::strerror(errno);
  if (::fstat(file.number(), &about) != 0) return std::strerror(errno);
  if (!S_ISREG(about.st_mode)) return "not a regular file";
  const auto size = static_cast<std::size_t>(about.st_size);
  const std::size_t begin = size - std::min(size, file_bytes_max);
  text.resize(size - begin);
  const ReadResult read = read_at(file.number(), begin, std::as_writable_bytes(std::span(text)));
  if (read.code != 0) return std::strerror(read.code);
  text.resize(read.bytes);
  if (begin > 0) text.erase(0, text.find('\n') + 1);  // npos + 1 is 0: one endless line stays
  return "";
}

/// 0, or the errno of the failure.
int write_to(const Descriptor& file, std::string_view text) {
  return file.is_open() ? write_all(file.number(), text) : errno;
}

}  // namespace

History::History(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code failed;
  if (std::filesystem::create_directories(file_->parent_path(), failed)) {
    std::filesystem::permissions(file_->parent_path(), std::filesystem::perms::owner_all, failed);
  }
  load();
}

void History::give_up(const std::string& reason) {
  log::warning("history: " + file_->string() + ": " + reason + "; this run's entries are not kept");
  file_.reset();
}

void History::load() {
  std::string bytes;
  if (const std::string reason = read_tail(*file_, bytes); !reason.empty()) return give_up(reason);
  std::string text;
  Utf8Stream stream;
  stream.push(bytes, text);
  stream.flush(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) entries_.push_back(decoded(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  if (entries_.size() <= entries_max && bytes.size() <= file_bytes_max / 2) return;
  if (entries_.size() > entries_max) {
    entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(entries_max));
  }
  rewrite();
}

void History::rewrite() {
  std::string text;
  std::size_t first = entries_.size();
  for (std::size_t bytes = 0; first > 0; --first) {
    bytes += entries_[first - 1].size() + 1;
    if (bytes > file_bytes_max / 4) break;
  }
  for (std::size_t i = first; i < entries_.size(); ++i) text += encoded(entries_[i]);
  std::filesystem::path fresh = *file_;
  fresh += ".new" + std::to_string(::getpid());
  if (const int code = write_to(open_file(fresh, O_WRONLY | O_CREAT | O_EXCL), text); code != 0) {
    ::unlink(fresh.c_str());
    return give_up(std::strerror(code));
  }
  if (::rename(fresh.c_str(), file_->c_str()) != 0) give_up(std::strerror(errno));
}

void History::append(const std::string& entry) {
  const int code = write_to(open_file(*file_, O_WRONLY | O_CREAT | O_APPEND), encoded(entry));
  if (code != 0) give_up(std::strerror(code));
}

void History::add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return;
  entries_.push_back(entry);
  if (file_ && entry.size() <= stored_bytes_max) append(entry);
}

}  // namespace hyb::app
