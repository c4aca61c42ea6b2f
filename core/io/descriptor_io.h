#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace hyb {

/// Whole transfers: signals and pieces are seen to here. Each answers with an errno, 0 for success,
/// so that its caller can say in its own words what could not be done.

/// Writes all of `bytes` from `offset` on. A file that takes no more without saying why: ENOSPC.
/// After a failure the first of them may have been written.
int write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes);

/// Writes all of `text` where the descriptor stands, or at the end of a file opened for appending.
int write_all(int descriptor, std::string_view text);

struct ReadResult {
  std::size_t bytes;  ///< so many of the first bytes were read
  int code;           ///< why no more; 0: the file ends there, or all were read
};

/// Fills `into` from `offset` on, as far as the file goes.
ReadResult read_at(int descriptor, std::uint64_t offset, std::span<std::byte> into);

/// Makes durable which names a folder holds: of files created or renamed in it. "" is the current
/// folder. Where the file system cannot sync a folder there is nothing to be done: 0.
int sync_folder(const std::filesystem::path& folder);

}  // namespace hyb
