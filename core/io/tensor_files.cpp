#include "core/io/tensor_files.h"

#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "core/io/model_folder.h"

namespace hyb {
namespace {

constexpr std::size_t index_bytes_max = 100'000'000;
constexpr int index_depth_max = 16;

/// SAX handler that extracts weight_map and skips all other members: an index can list a hundred
/// thousand tensors, and a tree of them is slow.
class IndexReader {
 public:
  explicit IndexReader(const std::filesystem::path& path) : path_(path) {}

  [[noreturn]] void fail(const std::string& text) const {
    throw Error(ErrorKind::model, path_.string() + ": " + text);
  }

  bool null() { return other(); }
  bool boolean(bool) { return other(); }
  bool number_integer(std::int64_t) { return other(); }
  bool number_unsigned(std::uint64_t value) {
    if (in_metadata_ && depth_ == 2 && key_ == "total_size") total_bytes_ = value;
    return other();
  }
  bool number_float(double, const std::string&) { return other(); }
  bool binary(std::vector<std::uint8_t>&) { return false; }

  bool string(std::string& value) {
    if (!(in_map_ && depth_ == 2)) return other();
    const auto [place, is_new] = numbers_.try_emplace(std::move(value), numbers_.size());
    if (is_new) check_plain(place->first);
    map_.insert_or_assign(std::move(key_), place->second);
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
    in_metadata_ = key_ == "metadata";
    if (in_map_ && has_map_) fail("duplicate key \"weight_map\"");
    has_map_ |= in_map_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    fail(fmt::format("not valid JSON in UTF-8 at byte {}", position));
  }

  ShardIndex finish() {
    if (!has_map_ || map_.empty()) fail("weight_map is missing or empty");
    // Files sorted by name, independent of the order of the tensors.
    ShardIndex index;
    std::vector<std::uint32_t> order(numbers_.size());
    for (const auto& [name, number] : numbers_) {
      order[number] = static_cast<std::uint32_t>(index.files.size());
      index.files.push_back(name);
    }
    for (auto& [tensor, number] : map_) number = order[number];
    index.file = std::move(map_);
    index.total_bytes = total_bytes_;
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
    if (++depth_ > index_depth_max)
      fail(fmt::format("nested deeper than {} levels", index_depth_max));
    return true;
  }

  bool close() {
    --depth_;
    if (depth_ == 1) in_map_ = in_metadata_ = false;
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
  bool in_metadata_ = false;
  std::optional<std::uint64_t> total_bytes_;
  bool has_map_ = false;
  std::string key_;
  std::map<std::string, std::uint32_t> numbers_;
  std::unordered_map<std::string, std::uint32_t> map_;
};

}  // namespace

ShardIndex read_shard_index(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, index_bytes_max);
  IndexReader reader(path);
  // The parser would take a NUL byte for the end of the text.
  if (text.find('\0') != std::string::npos) reader.fail("not valid JSON: it holds a NUL byte");
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.finish();
}

namespace {

constexpr std::string_view single_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";

[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  throw Error(ErrorKind::model,
              fmt::format("{}: no weights: looked for {} and {}; other formats (.bin, .pt) are "
                          "not read; a .gguf file is named itself",
                          folder.string(), single_name, index_name));
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::optional<MissingFiles> missing_of(const ShardIndex& index, const std::filesystem::path& folder,
                                       TensorFiles::IsUnneeded is_unneeded) {
  MissingFiles missing = {
      .names = {}, .listed = index.files.size(), .total_bytes = index.total_bytes};
  std::vector<bool> is_needed(index.files.size(), false);
  for (const auto& [tensor, file] : index.file) {
    if (is_unneeded == nullptr || !is_unneeded(tensor)) is_needed[file] = true;
  }
  for (std::size_t i = 0; i < index.files.size(); ++i) {
    const std::string& name = index.files[i];
    if (is_needed[i] && !is_there(folder / name)) missing.names.push_back(name);
  }
  return missing.names.empty() ? std::nullopt : std::optional(missing);
}

[[noreturn]] void fail_as_incomplete(const std::filesystem::path& index,
                                     const MissingFiles& missing) {
  throw Error(ErrorKind::model,
              fmt::format("{}: {} of the {} files that it lists are not in the folder, the first "
                          "is {}; was the download completed?",
                          index.string(), missing.names.size(), missing.listed,
                          quote_name(missing.names.front())));
}

/// Counts deviations and keeps the first one for the message.
struct Deviations {
  std::size_t count = 0;
  std::string first;

  void add(const std::string& text) {
    if (count++ == 0) first = text;
  }

  /// "1 tensor is", "2 tensors are".
  std::string counted_are(std::string_view noun) const {
    return counted(static_cast<std::int64_t>(count), noun) + (count == 1 ? " is" : " are");
  }
};

}  // namespace

bool TensorFiles::are_in(const std::filesystem::path& folder, IsUnneeded is_unneeded) {
  return is_listed(folder / single_name) ||
         (is_listed(folder / index_name) && !missing_in(folder, is_unneeded));
}

std::optional<MissingFiles> TensorFiles::missing_in(const std::filesystem::path& folder,
                                                    IsUnneeded is_unneeded) {
  if (is_listed(folder / single_name) || !is_listed(folder / index_name)) return std::nullopt;
  return missing_of(read_shard_index(folder / index_name), folder, is_unneeded);
}

TensorFiles TensorFiles::of_file(const std::filesystem::path& file) {
  TensorFiles files;
  files.open_one(file);
  return files;
}

namespace {

/// Describes it as TensorInfo does: plain types by their DType, all others by their block.
TensorInfo info_of(const GgufTensor& tensor) {
  TensorInfo info = {.name = tensor.name,
                     .dtype = DType::u8,
                     .shape = tensor.shape,
                     .begin = tensor.begin,
                     .end = tensor.begin + tensor.bytes,
                     .fault = tensor.fault};
  const GgufBlock* const block = gguf_block(tensor.type);
  if (block == nullptr) {
    info.other_dtype = fmt::format("type {}", tensor.type);
  } else if (const auto dtype = dtype_from_name(block->name)) {
    info.dtype = *dtype;
  } else {
    info.other_dtype = std::string(block->name);
    info.block = block;
  }
  return info;
}

}  // namespace

TensorFiles TensorFiles::of_gguf(GgufFiles gguf) {
  TensorFiles files;
  const std::vector<const GgufTensor*> tensors = gguf.tensors();
  files.gguf_tensors_.reserve(tensors.size());
  for (const GgufTensor* tensor : tensors) {
    const TensorInfo& info = files.gguf_tensors_.emplace_back(info_of(*tensor));
    files.places_.emplace(info.name,
                          Place{0, static_cast<std::uint32_t>(files.gguf_tensors_.size() - 1)});
  }
  files.gguf_ = std::move(gguf);
  return files;
}

TensorFiles::TensorFiles(const std::filesystem::path& folder, IsUnneeded is_unneeded) {
  if (const std::string adapter = adapter_text(folder);
      !adapter.empty() && are_in(folder, is_unneeded)) {
    throw Error(ErrorKind::model,
                fmt::format("{}: beside the weights, {}; to run them without it, move it elsewhere",
                            folder.string(), adapter));
  }
  if (is_listed(folder / single_name)) {
    open_one(folder / single_name);
    return;
  }
  const std::filesystem::path index_path = folder / index_name;
  if (!is_listed(index_path)) fail_without_weights(folder);
  const ShardIndex index = read_shard_index(index_path);
  if (const auto missing = missing_of(index, folder, is_unneeded)) {
    fail_as_incomplete(index_path, *missing);
  }
  for (const std::string& name : index.files) {
    if (is_there(folder / name)) open_one(folder / name);
  }
  if (files_.empty()) fail_without_weights(folder);
  check_against(index, index_path, is_unneeded);
}

void TensorFiles::open_one(const std::filesystem::path& path) {
  const auto number = static_cast<std::uint32_t>(files_.size());
  files_.emplace_back(path);
  const std::span<const TensorInfo> tensors = files_.back().tensors();
  places_.reserve(places_.size() + tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const auto [twin, is_new] = places_.try_emplace(tensors[i].name, Place{number, i});
    if (is_new || twin->second.file == number) continue;
    throw Error(ErrorKind::model,
                fmt::format("{}: tensor {}: also in {}", path.string(), quote_name(tensors[i].name),
                            files_[twin->second.file].path().string()));
  }
}

void TensorFiles::check_against(const ShardIndex& index, const std::filesystem::path& index_path,
                                IsUnneeded is_unneeded) const {
  Deviations missing, moved;
  for (const auto& [name, file] : index.file) {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      if (is_unneeded != nullptr && is_unneeded(name)) continue;
      missing.add(quote_name(name));
    } else if (found->second.file != file) {
      moved.add(fmt::format("{} is in {}, not in {}", quote_name(name),
                            files_[found->second.file].path().filename().string(),
                            index.files[file]));
    }
  }
  const std::string source = index_path.string();
  if (missing.count > 0) {
    log::warning(fmt::format("{}: {} in none of the files, such as {}", source,
                             missing.counted_are("listed tensor"), missing.first));
  }
  if (moved.count > 0) {
    log::warning(fmt::format("{}: {} in another file than it says ({}), which is used", source,
                             moved.counted_are("tensor"), moved.first));
  }
  Deviations unlisted;
  for (const auto& [name, place] : places_) {
    if (!index.file.contains(std::string(name))) unlisted.add(quote_name(name));
  }
  if (unlisted.count > 0) {
    log::warning(fmt::format("{}: {} in the files and not listed, such as {}", source,
                             unlisted.counted_are("tensor"), unlisted.first));
  }
}

const TensorInfo& TensorFiles::at(const Place& place) const {
  return gguf_ ? gguf_tensors_[place.tensor] : files_[place.file].tensors()[place.tensor];
}

const TensorInfo* TensorFiles::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &at(found->second);
}

const TensorFiles::Place& TensorFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  require(found != places_.end(), "TensorFiles: the tensor exists");
  return found->second;
}

const std::filesystem::path& TensorFiles::path_of(std::string_view name) const {
  return gguf_ ? gguf_->path_of(name) : files_[place(name).file].path();
}

std::string TensorFiles::source() const {
  const std::filesystem::path first = paths().front();
  return (gguf_ ? first : first.parent_path()).string();
}

std::vector<std::filesystem::path> TensorFiles::paths() const {
  if (gguf_) return gguf_->paths();
  std::vector<std::filesystem::path> paths;
  for (const SafetensorsFile& file : files_) paths.push_back(file.path());
  return paths;
}

void TensorFiles::map() {
  if (gguf_) return gguf_->map();
  for (SafetensorsFile& file : files_) file.map();
}

TensorView TensorFiles::view(std::string_view name) const {
  const Place& place = this->place(name);
  const TensorInfo& info = at(place);
  if (!gguf_) return files_[place.file].view(info);
  return {
      .dtype = info.dtype, .shape = info.shape, .bytes = gguf_->view(name), .block = info.block};
}

void TensorFiles::drop(std::string_view name) const {
  if (gguf_) return gguf_->drop(name);
  const Place& place = this->place(name);
  files_[place.file].drop(at(place));
}

std::vector<std::string_view> TensorFiles::names() const {
  std::vector<std::string_view> names;
  names.reserve(places_.size());
  for (const TensorInfo& tensor : gguf_tensors_) names.push_back(tensor.name);
  for (const SafetensorsFile& file : files_) {
    for (const TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  }
  return names;
}

std::uint64_t TensorFiles::bytes() const {
  if (gguf_) return gguf_->bytes();
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : files_) {
    for (const TensorInfo& tensor : file.tensors()) bytes += tensor.size_bytes();
  }
  return bytes;
}

}  // namespace hyb
