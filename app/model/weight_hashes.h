#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/model/digest.h"
#include "app/ui/process.h"

namespace hyb::app {

/// Properties of a file that change with its bytes and are known without reading it. A writer can
/// restore the modification time, but not the time of the last change to the inode.
struct FileStamp {
  std::uint64_t bytes = 0, inode = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

/// Identifies the file that the path leads to. Throws Error(model) where there is none.
FileStamp stamp_of(const std::filesystem::path& path);

/// Hashes of files that were read before, by their stamps: lines of text in one file.
class HashCache {
 public:
  /// `path`: the file, in a folder that may not exist yet; none: nothing is kept. A file that can't
  /// be read, or a line that is damaged, is as good as none.
  explicit HashCache(std::optional<std::filesystem::path> path);

  std::optional<Hash128> find(const FileStamp& stamp) const;

  /// Keeps it and writes the file, together with what other processes wrote meanwhile. Past
  /// entries_max the oldest go. A file that can't be written is no error: the next run reads the
  /// weights again.
  void add(const FileStamp& stamp, const Hash128& hash);

  static constexpr std::size_t entries_max = 1000;

 private:
  struct Entry {
    FileStamp stamp;
    Hash128 hash;
  };

  std::vector<Entry> read() const;

  std::optional<std::filesystem::path> path_;
  std::vector<Entry> entries_;  ///< the oldest first
};

/// Every byte of a model's weight files, as XXH3 of 128 bits per file. Files that the cache does
/// not know are read on a thread of its own, one after another, while the caller works: 0.2 to 0.5
/// seconds per GB were measured on a busy machine where they were in the page cache.
class WeightHashes {
 public:
  struct File {
    std::filesystem::path path;
    FileStamp stamp;  ///< when this was made
    std::optional<Hash128> hash = {};
    std::string name() const { return path.filename().string(); }
  };

  /// Throws Error(model) for a file that is missing.
  WeightHashes(const std::vector<std::filesystem::path>& paths, HashCache cache);
  ~WeightHashes();

  const std::vector<File>& files() const { return files_; }

  /// Begins to read the files without a hash; at most once.
  void start();

  /// Takes what was hashed since the last call. True: every file has its hash. Throws Error(model),
  /// once and for all, for a file that can't be read or was changed while it was read.
  bool poll();

 private:
  struct Reading;

  bool read_piece();
  void end_file();

  std::vector<File> files_;
  HashCache cache_;
  std::unique_ptr<Reading> reading_;  ///< of the thread
  std::mutex mutex_;                  ///< for the two below, which the thread hands over
  std::vector<File> hashed_;
  std::exception_ptr error_;
  std::unique_ptr<BackgroundWork> work_;  ///< last: it ends before what it uses
};

/// The files of a folder's weights; none where it has none.
std::vector<std::filesystem::path> weight_paths(const ModelSource& source);

}  // namespace hyb::app
