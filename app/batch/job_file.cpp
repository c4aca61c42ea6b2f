#include "app/batch/job_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
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
  write_atomically(path, job.dump(2) + "\n", FileAccess::umask);
}

std::string job_difference(const Json& was, const Json& is) { return difference("", was, is); }

}  // namespace hyb::app
