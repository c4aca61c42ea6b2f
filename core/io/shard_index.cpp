#include "core/io/shard_index.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/quote_name.h"

namespace hyb {
namespace {

constexpr std::size_t bytes_max = 100'000'000;
constexpr int depth_max = 16;

/// Takes weight_map out of the index and skips whatever stands beside it: an index can list a
/// hundred thousand tensors, and a tree of them is slow.
class IndexReader {
 public:
  explicit IndexReader(const std::filesystem::path& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& text) const {
    throw Error(ErrorKind::model, path_.string() + ": " + text);
  }

  bool null() { return other(); }
  bool boolean(bool) { return other(); }
  bool number_integer(std::int64_t) { return other(); }
  bool number_unsigned(std::uint64_t) { return other(); }
  bool number_float(double, const std::string&) { return other(); }
  bool binary(std::vector<std::uint8_t>&) { return false; }

  bool string(std::string& value) {
    if (!(in_map_ && depth_ == 2)) return other();
    const auto [place, is_new] = numbers_.try_emplace(std::move(value), numbers_.size());
    if (is_new) check_plain(place->first);
    if (!map_.try_emplace(std::move(key_), place->second).second) {
      fail("tensor " + quote_name(key_) + ": duplicate key");
    }
    return true;
  }

  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& value) {
    key_ = std::move(value);
    if (depth_ != 1) return true;
    in_map_ = key_ == "weight_map";
    if (in_map_ && has_map_) fail("duplicate key \"weight_map\"");
    has_map_ |= in_map_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    fail(fmt::format("not valid JSON in UTF-8 at byte {}", position));
  }

  ShardIndex finish() {
    if (!has_map_ || map_.empty()) fail("weight_map is missing or empty");
    // Files in the order of their names, whatever the order of the tensors.
    ShardIndex index;
    std::vector<std::uint32_t> order(numbers_.size());
    for (const auto& [name, number] : numbers_) {
      order[number] = static_cast<std::uint32_t>(index.files.size());
      index.files.push_back(name);
    }
    for (auto& [tensor, number] : map_) number = order[number];
    index.file = std::move(map_);
    return index;
  }

 private:
  bool other() const {
    if (depth_ == 0) fail("must be a JSON object");
    if (in_map_ && depth_ == 1) fail("weight_map must be an object");
    if (in_map_) fail("weight_map: tensor " + quote_name(key_) + ": the file name must be text");
    return true;
  }

  bool open(bool is_object) {
    if (depth_ == 0 && !is_object) other();
    if (in_map_ && (depth_ > 1 || !is_object)) other();
    if (++depth_ > depth_max) fail(fmt::format("nested deeper than {} levels", depth_max));
    return true;
  }

  bool close() {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }

  void check_plain(const std::string& name) const {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      fail("weight_map: tensor " + quote_name(key_) + ": " + quote_name(name) +
           " is not the plain name of a file in the folder");
    }
  }

  const std::filesystem::path& path_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string key_;
  std::map<std::string, std::uint32_t> numbers_;
  std::unordered_map<std::string, std::uint32_t> map_;
};

}  // namespace

ShardIndex read_shard_index(const std::filesystem::path& path) {
  const std::string text = read_whole_file(path, bytes_max);
  IndexReader reader(path);
  // JSON has no bare NUL, and the parser would take one for the end of the text.
  if (text.find('\0') != std::string::npos) reader.fail("not valid JSON: it holds a NUL byte");
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.finish();
}

}  // namespace hyb
