#include "app/model/weight_hashes.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

std::int64_t time_ns(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp stamp_of(const std::filesystem::path& path) {
  struct stat is {};
  if (::stat(path.c_str(), &is) != 0) {
    throw Error(ErrorKind::model,
                fmt::format("{}: can't be examined: {}", path.string(), std::strerror(errno)));
  }
  return {.bytes = static_cast<std::uint64_t>(is.st_size),
          .inode = is.st_ino,
          .modified_ns = time_ns(is.st_mtim),
          .changed_ns = time_ns(is.st_ctim)};
}

HashCache::HashCache(std::optional<std::filesystem::path> path)
    : path_(std::move(path)), entries_(read()) {}

std::vector<HashCache::Entry> HashCache::read() const {
  std::vector<Entry> entries;
  if (!path_ || !is_listed(*path_)) return entries;
  try {
    std::istringstream lines(read_whole_file(*path_, std::size_t{1} << 20));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Entry entry;
      FileStamp& stamp = entry.stamp;
      words >> stamp.bytes >> stamp.inode >> stamp.modified_ns >> stamp.changed_ns >> std::hex >>
          entry.hash.high >> entry.hash.low;
      if (words) entries.push_back(entry);
    }
  } catch (const Error& error) {
    log::debug(std::string("hashes of weights: ") + error.what());
  }
  return entries;
}

std::optional<Hash128> HashCache::find(const FileStamp& stamp) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Entry& entry) { return entry.stamp == stamp; });
  return found == entries_.rend() ? std::nullopt : std::optional(found->hash);
}

void HashCache::add(const FileStamp& stamp, const Hash128& hash) {
  if (!path_) return;
  entries_ = read();
  std::erase_if(entries_, [&](const Entry& entry) { return entry.stamp == stamp; });
  entries_.push_back({.stamp = stamp, .hash = hash});
  if (entries_.size() > entries_max) entries_.erase(entries_.begin());
  std::string text;
  for (const Entry& entry : entries_) {
    text += fmt::format("{} {} {} {} {:016x} {:016x}\n", entry.stamp.bytes, entry.stamp.inode,
                        entry.stamp.modified_ns, entry.stamp.changed_ns, entry.hash.high,
                        entry.hash.low);
  }
  try {
    std::error_code ignored;  // what is wrong with the folder the file says
    std::filesystem::create_directories(path_->parent_path(), ignored);
    write_atomically(*path_, text);
  } catch (const Error& error) {
    log::debug(std::string("hashes of weights: ") + error.what());
  }
}

/// The thread's own: files that are left, and how far the first one was read.
struct WeightHashes::Reading {
  std::deque<File> left;
  std::optional<hyb::File> file;
  std::unique_ptr<Hasher> hasher;
  std::uint64_t at = 0;
  std::vector<char> piece = std::vector<char>(std::size_t{1} << 20);
};

WeightHashes::WeightHashes(const std::vector<std::filesystem::path>& paths, HashCache cache)
    : cache_(std::move(cache)) {
  for (const std::filesystem::path& path : paths) {
    const FileStamp stamp = stamp_of(path);
    files_.push_back({.path = path, .stamp = stamp, .hash = cache_.find(stamp)});
  }
}

WeightHashes::~WeightHashes() = default;

void WeightHashes::start() {
  require(!reading_, "weight hashes: started once");
  reading_ = std::make_unique<Reading>();
  std::copy_if(files_.begin(), files_.end(), std::back_inserter(reading_->left),
               [](const File& file) { return !file.hash; });
  if (reading_->left.empty()) return;
  work_ = std::make_unique<BackgroundWork>([this] {
    try {
      return read_piece();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      return false;
    }
  });
}

bool WeightHashes::read_piece() {
  Reading& reading = *reading_;
  if (!reading.file) {
    reading.file.emplace(reading.left.front().path);
    reading.hasher = std::make_unique<Hasher>();
    reading.at = 0;
  }
  const std::uint64_t count =
      std::min<std::uint64_t>(reading.piece.size(), reading.file->size() - reading.at);
  reading.file->read(reading.at, std::as_writable_bytes(std::span(reading.piece.data(), count)));
  reading.hasher->add({reading.piece.data(), count});
  reading.at += count;
  if (reading.at == reading.file->size()) end_file();
  return !reading.left.empty();
}

void WeightHashes::end_file() {
  Reading& reading = *reading_;
  File done = std::move(reading.left.front());
  reading.left.pop_front();
  done.hash = reading.hasher->value();
  reading.file.reset();
  if (stamp_of(done.path) != done.stamp) {
    throw Error(ErrorKind::model, done.path.string() + ": was changed while it was in use");
  }
  const std::lock_guard lock(mutex_);
  hashed_.push_back(std::move(done));
}

bool WeightHashes::poll() {
  std::vector<File> hashed;
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    hashed.swap(hashed_);
  }
  for (const File& done : hashed) {
    cache_.add(done.stamp, *done.hash);
    for (File& file : files_) {
      if (file.path == done.path) file.hash = done.hash;
    }
  }
  return std::all_of(files_.begin(), files_.end(),
                     [](const File& file) { return file.hash.has_value(); });
}

std::vector<std::filesystem::path> weight_paths(const ModelSource& source) {
  return source.has_files() && source.has_tensors() ? source.tensors().paths()
                                                    : std::vector<std::filesystem::path>();
}

}  // namespace hyb::app
