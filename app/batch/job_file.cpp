#include "app/batch/job_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/batch/descriptor.h"
#include "app/batch/output_file.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

std::string difference(const std::string& name, const Json& was, const Json& is) {
  if (!was.is_object() || !is.is_object()) {
    return was == is ? "" : fmt::format("{} is {}, was {}", name, to_text(is), to_text(was));
  }
  const auto member = [](const Json& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() ? Json() : *found;
  };
  const auto inside = [&](const std::string& key) {
    if (key == "name" || key == "hyb" || key == "last_run") return std::string();
    return difference(name.empty() ? key : name + "." + key, member(was, key), member(is, key));
  };
  for (const auto& [key, value] : is.items()) {
    if (std::string found = inside(key); !found.empty()) return found;
  }
  for (const auto& [key, value] : was.items()) {
    if (std::string found = inside(key); !found.empty()) return found;
  }
  return {};
}

}  // namespace

std::filesystem::path JobFile::beside(const std::filesystem::path& output) {
  std::filesystem::path path = output;
  path += ".job";
  return path;
}

std::optional<Json> JobFile::read(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  Json job = parse_json(read_whole_file(path, std::size_t{1} << 20), path.string());
  if (!job.is_object()) throw Error(ErrorKind::model, path.string() + ": is no job file");
  return job;
}

void JobFile::write(const std::filesystem::path& path, const Json& job) {
  std::filesystem::path beside = path;
  beside += ".new";
  const std::string text = job.dump(2) + "\n";
  const Descriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open() ||
      ::write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.number()) != 0 || ::rename(beside.c_str(), path.c_str()) != 0) {
    throw Error(ErrorKind::runtime,
                path.string() + ": the job file can't be written: " + std::strerror(errno));
  }
  sync_folder(path.parent_path());
}

std::string job_difference(const Json& was, const Json& is) { return difference("", was, is); }

}  // namespace hyb::app
