#include "app/batch/job_file.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "app/model/digest.h"
#include "app/options/words.h"
#include "app/request/prompt.h"
#include "app/runtime/model_outline.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"

namespace hyb::app {

Json member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? Json() : *found;
}

namespace {

constexpr std::array stamp_names = {"bytes", "inode", "modified_ns", "changed_ns"};

/// The names of both objects' members, each once.
std::set<std::string> keys_of(const Json& was, const Json& is) {
  std::set<std::string> keys;
  for (const Json* object : {&was, &is}) {
    if (!object->is_object()) continue;
    for (const auto& [key, value] : object->items()) keys.insert(key);
  }
  return keys;
}

/// Spells a value as the command line would.
std::string setting_text(const std::string& key, const Json& value) {
  if (key == "think" && value.is_boolean()) return std::string(name_of(value.get<bool>()));
  const bool is_off = value == false;
  const bool is_empty = (value.is_string() || value.is_array()) && value.empty();
  if (value.is_null() || is_off || is_empty) return "not given";
  if (key == "truncate" && value.is_number_integer()) {  // as Truncate
    const auto number = value.get<std::int64_t>();
    if (number == static_cast<int>(Truncate::refuse)) return "not given";
    for (const auto& [word, truncate] : truncate_words) {
      if (number == static_cast<int>(truncate)) return std::string(word);
    }
  }
  return value == true ? "given" : to_text(value);
}

void add_settings(const Json& was, const Json& is, std::vector<std::string>& found) {
  for (const std::string& key : keys_of(was, is)) {
    const std::string before = setting_text(key, member(was, key.c_str()));
    const std::string now = setting_text(key, member(is, key.c_str()));
    if (before == now) continue;
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    found.push_back(fmt::format("{} is {}, was {}", flag, now, before));
  }
}

/// "in.jsonl (3 lines, 120 bytes)"
std::string input_text(const Json& input) {
  const Json name = member(input, "name"), lines = member(input, "lines");
  const std::string text = name.is_string() ? name.get<std::string>() : "another";
  if (!lines.is_number_integer()) return text;
  const Json bytes = member(input, "bytes");
  return fmt::format("{} ({}, {})", text, counted(lines.get<std::int64_t>(), "line"),
                     counted(bytes.is_number_integer() ? bytes.get<std::int64_t>() : 0, "byte"));
}

void add_input(const Json& was, const Json& is, std::vector<std::string>& found) {
  if (member(was, "xxh3") != member(is, "xxh3")) {
    const bool is_same_size = member(was, "bytes") == member(is, "bytes");
    found.push_back(
        is_same_size
            ? fmt::format("the input {} was edited: other text of the same size", input_text(is))
            : fmt::format("the input is {}, was {}", input_text(is), input_text(was)));
  }
  const Json before = member(was, "format"), now = member(is, "format");
  if (before != now) {
    found.push_back(fmt::format("lines are read as {}, were read as {} (--format)", to_text(now),
                                to_text(before)));
  }
}

void add_model(const Json& was, const Json& is, std::vector<std::string>& found) {
  if (member(was, "xxh3") == member(is, "xxh3")) return;
  const Json name_was = member(was, "name"), name = member(is, "name");
  if (name_was != name) {
    found.push_back(fmt::format("the model is {}, was {}", to_text(name), to_text(name_was)));
  }
  const std::size_t before = found.size();
  const Json texts_was = member(was, "texts"), texts = member(is, "texts");
  for (const std::string& file : keys_of(texts_was, texts)) {
    const Json old_hash = member(texts_was, file.c_str()), hash = member(texts, file.c_str());
    if (old_hash == hash || texts_was.is_null()) continue;
    const char* change = old_hash.is_null() ? "is new" : hash.is_null() ? "is gone" : "was changed";
    found.push_back(fmt::format("the model's {} {}", file, change));
  }
  std::string weights = weights_difference(member(was, "weights"), member(is, "weights")).text;
  if (!weights.empty()) found.push_back(std::move(weights));
  if (found.size() > before) return;
  found.push_back(texts_was.is_null()
                      ? "the model's files were changed: config, tokenizer or weights"
                      : "the model's weights were changed");
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

std::string job_difference(const Json& was, const Json& is) {
  std::vector<std::string> found;
  add_input(member(was, "input"), member(is, "input"), found);
  const Json settings_was = member(was, "settings"), settings = member(is, "settings");
  add_settings(settings_was, settings, found);
  // Random weights take the place of the files'.
  if (member(settings_was, "random_weights") == member(settings, "random_weights")) {
    add_model(member(was, "model"), member(is, "model"), found);
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

Json weights_json(const std::vector<WeightHashes::File>& files) {
  Json weights = Json::object();
  for (const WeightHashes::File& file : files) {
    weights[file.name()] = {{"bytes", file.stamp.bytes},
                            {"inode", file.stamp.inode},
                            {"modified_ns", file.stamp.modified_ns},
                            {"changed_ns", file.stamp.changed_ns},
                            {"xxh3", file.hash ? Json(hex(*file.hash)) : Json()}};
  }
  return weights;
}

WeightsDifference weights_difference(const Json& was, const Json& is) {
  WeightsDifference found;
  if (was.is_null() || is.is_null()) return found;
  const auto has_stamp_of = [](const Json& file, const Json& other) {
    return std::all_of(stamp_names.begin(), stamp_names.end(),
                       [&](const char* name) { return member(file, name) == member(other, name); });
  };
  const bool is_pair = was.size() == 1 && is.size() == 1;
  for (const std::string& name : keys_of(is_pair ? is : was, is)) {
    const Json before = is_pair ? was.front() : member(was, name.c_str());
    const Json now = member(is, name.c_str());
    if (before.is_null() || now.is_null()) {
      found.text =
          fmt::format("the model's weight file {} is {}", name, now.is_null() ? "gone" : "new");
      return found;
    }
    if (has_stamp_of(before, now)) continue;
    const Json bytes_was = member(before, "bytes"), bytes = member(now, "bytes");
    const Json hash_was = member(before, "xxh3"), hash = member(now, "xxh3");
    if (bytes_was != bytes) {
      found.text = fmt::format("the model's weight file {} has {} bytes, had {}", name,
                               to_text(bytes), to_text(bytes_was));
    } else if (hash_was.is_null()) {
      found.text = fmt::format(
          "the model's weight file {} was replaced or written to, and the earlier run ended before "
          "it had read all of its {} bytes: whether they are the same can't be known",
          name, to_text(bytes));
    } else if (hash.is_null()) {
      found.is_pending = true;
    } else if (hash_was != hash) {
      found.text = fmt::format(
          "the model's weight file {} has other bytes than it had (its size is the same, {} bytes)",
          name, to_text(bytes));
    }
    if (!found.text.empty()) return found;
  }
  return found;
}

}  // namespace hyb::app
