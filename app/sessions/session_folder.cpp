#include "app/sessions/session_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::string_view ending = ".session";
constexpr std::size_t name_bytes_max = 64;

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

bool is_session_name(std::string_view name) {
  const auto may_stand = [](char letter) {
    return is_plain(letter) || letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= name_bytes_max && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(), may_stand);
}

}  // namespace

void check_session_name(const std::string& name) {
  if (is_session_name(name)) return;
  throw Error(ErrorKind::usage,
              fmt::format("session '{}': a name is 1 to {} letters, digits, '-', '_' and '.', and "
                          "begins with a letter or digit",
                          name.substr(0, name_bytes_max), name_bytes_max));
}

std::filesystem::path SessionFolder::path_of(const std::string& name) const {
  check_session_name(name);
  return folder_ / (name + std::string(ending));
}

bool SessionFolder::has(const std::string& name) const {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path_of(name), ignored));
}

std::vector<std::string> SessionFolder::names() const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder_, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string file = entries->path().filename().string();
    if (!file.ends_with(ending)) continue;
    std::string name = file.substr(0, file.size() - ending.size());
    if (is_session_name(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

SavedSession SessionFolder::read(const std::string& name) const {
  const std::filesystem::path path = path_of(name);
  SessionReading reading = read_session(path);
  if (!reading.text) {
    const std::string hint = has(name) ? "; to be rid of it: hyb sessions rm " + name : "";
    throw Error(ErrorKind::model, reading.refused + hint);
  }
  return {.fingerprint = std::move(reading.text->fingerprint),
          .record = parse_record(reading.text->app, path.string())};
}

void SessionFolder::write(const std::string& name, const SavedSession& session,
                          const SessionMemory* memory) const {
  const std::filesystem::path path = path_of(name);
  std::error_code error;
  if (std::filesystem::create_directories(folder_, error)) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    throw Error(ErrorKind::runtime,
                folder_.string() + ": the folder can't be made: " + error.message());
  }
  const SessionText text{.fingerprint = session.fingerprint, .app = record_text(session.record)};
  if (memory == nullptr) {
    write_session(path, text);
  } else {
    write_session(path, text, memory->carrier, memory->sequences, memory->bytes_max);
  }
}

SessionRestored SessionFolder::restore(const std::string& name, const Fingerprint& here,
                                       SnapshotCarrier& carrier) const {
  return restore_session(path_of(name), here, carrier);
}

void SessionFolder::remove(const std::string& name) const {
  const std::filesystem::path path = path_of(name);
  if (!has(name)) throw Error(ErrorKind::usage, "there is no session '" + name + "'");
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) {
    throw Error(ErrorKind::runtime, path.string() + ": can't be removed: " + error.message());
  }
}

}  // namespace hyb::app
