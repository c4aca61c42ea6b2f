#include "app/quantize/quantized_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "app/base/texts.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "models/families.h"
#include "models/weights.h"

namespace hyb::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* job_file = "hyb-quantize.json";
/// Other files of a folder that programs read; a model has some of them.
constexpr std::string_view copied_files =
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "vocab.json merges.txt tokenizer.model tiktoken.model chat_template.jinja "
    "chat_template.json generation_config.json preprocessor_config.json "
    "processor_config.json";
constexpr std::size_t copied_bytes_max = std::size_t{256} << 20;
constexpr std::string_view weight_end = ".weight";

bool is_plain(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

TensorFiles checked_files(const ModelSource& source, const std::string& format) {
  if (source.is_gguf()) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: a GGUF file has no tokenizer.json and config.json to go into a "
                            "folder; give the folder that it was made of",
                            source.name()));
  }
  if (!source.has_tensors()) throw Error(ErrorKind::model, source.lack_of_tensors());
  if (const auto quantization = source.config().quantization()) {
    throw Error(ErrorKind::usage,
                fmt::format("{} is quantised already ({}): {} of it would lose twice; give the "
                            "folder with its weights in BF16",
                            source.name(), quantization->s("quant_method", "in some way"), format));
  }
  return source.tensors();
}

/// Names a matrix that is not quantised, for people.
std::string_view kind_of(const models::PlannedMatrix& matrix) {
  if (matrix.key.role.name().ends_with("embed")) return "the embedding";
  if (matrix.key.role == "head") return "the head";
  if (matrix.experts > 1) return "experts that are in one tensor";
  if (matrix.key.role.name().find("router") != std::string_view::npos) return "routers";
  return "small matrices";
}

void write_little(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xffU);
}

}  // namespace

QuantizedFolder::QuantizedFolder(const ModelSource& source, const FolderFormat& format,
                                 std::size_t shard_bytes)
    : source_(source),
      format_(format),
      files_(checked_files(source, std::string(format.name))),
      config_(source.read("config.json").value()),
      plan_(models::plan_of(source.config(), false)),
      index_(plan_, models::family_of(source.config()), files_),
      matrices_(models::planned_matrices(plan_, index_)) {
  files_.map();
  plan_entries();
  if (coded_ == 0) refuse_nothing();
  plan_shards(shard_bytes);
}

void QuantizedFolder::note_kept(const Entry& entry, const models::PlannedMatrix* matrix) {
  const TensorInfo& info = *files_.find(entry.name);
  if (matrix == nullptr) {
    ++kept_[info.shape.size() < 2 ? "norms and vectors" : "convolutions and what hyb does not run"];
  } else if (!matrix->is_linear || matrix->experts > 1 || !entry.name.ends_with(weight_end)) {
    ++kept_[std::string(kind_of(*matrix))];
  } else {
    odd_.push_back(fmt::format("{} (of {} columns)", quote_name(entry.name), matrix->columns));
  }
  if (info.shape.size() == 2 && entry.name.ends_with(weight_end)) {
    modules_.push_back(entry.name.substr(0, entry.name.size() - weight_end.size()));
  }
}

void QuantizedFolder::plan_entries() {
  std::map<std::string_view, const models::PlannedMatrix*> matrix_of;
  for (const models::PlannedMatrix& matrix : matrices_) {
    matrix_of.emplace(index_.name(matrix.key), &matrix);
  }
  std::set<std::string> names;
  for (const std::string_view name : files_.names()) {
    const TensorInfo& info = *files_.find(name);
    if (!info.fault.empty()) {
      throw Error(ErrorKind::model, fmt::format("tensor {}: {}", quote_name(name), info.fault));
    }
    const auto found = matrix_of.find(name);
    const models::PlannedMatrix* const matrix = found == matrix_of.end() ? nullptr : found->second;
    Entry entry = {.name = std::string(name)};
    const double numbers = static_cast<double>(info.size_bytes()) / size_of(info.dtype);
    numbers_ += numbers;
    if (matrix != nullptr && !is_plain(info.dtype)) {
      throw Error(ErrorKind::model,
                  fmt::format("tensor {} is {}: only BF16, F16 and F32 are quantised",
                              quote_name(name), info.dtype_name()));
    }
    if (matrix != nullptr && matrix->is_linear && matrix->experts == 1 && info.shape.size() == 2 &&
        name.ends_with(weight_end) && format_.written.takes(matrix->columns)) {
      entry.matrix = matrix;
      entry.tensors =
          models::written_tensors(format_.written, entry.name, matrix->rows, matrix->columns);
    } else {
      entry.tensors.push_back({entry.name, info.dtype, info.shape});
    }
    for (const models::WrittenTensor& tensor : entry.tensors) {
      entry.bytes += tensor.bytes();
      if (!names.insert(tensor.name).second) {
        throw Error(ErrorKind::model,
                    fmt::format("tensor {} would be there twice", quote_name(tensor.name)));
      }
    }
    bytes_ += entry.bytes;
    if (entry.matrix != nullptr) {
      ++coded_;
      coded_bytes_ += entry.bytes;
      coded_numbers_ += numbers;
    } else {
      note_kept(entry, matrix);
    }
    entries_.push_back(std::move(entry));
  }
}

void QuantizedFolder::refuse_nothing() const {
  constexpr models::WrittenFormat int8 = {kernels::ScaledLevels::int8, 0};
  const bool fits_in_int8 = std::ranges::any_of(matrices_, [&](const models::PlannedMatrix& one) {
    return one.is_linear && one.experts == 1 && int8.takes(one.columns);
  });
  throw Error(
      ErrorKind::usage,
      fmt::format("{}: none of its matrices can be in {}, all would stay as published: {}{}",
                  source_.name(), format_.name, kept_text(),
                  fits_in_int8 ? "; --format int8 takes columns in eights" : ""));
}

void QuantizedFolder::plan_shards(std::size_t shard_bytes) {
  for (std::size_t first = 0; first < entries_.size();) {
    Shard shard = {.first = first, .end = first, .header = {}};
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    std::size_t at = 0;
    while (shard.end < entries_.size() &&
           (shard.end == first || at + entries_[shard.end].bytes <= shard_bytes)) {
      for (const models::WrittenTensor& tensor : entries_[shard.end].tensors) {
        header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"data_offsets", {at, at + tensor.bytes()}}};
        at += tensor.bytes();
      }
      ++shard.end;
    }
    std::string text = to_text(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    write_little(shard.header, text.size());
    shard.header += text;
    shard.bytes = shard.header.size() + at;
    first = shard.end;
    shards_.push_back(std::move(shard));
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].file = shards_.size() == 1
                          ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size());
  }
}

namespace {

/// But for the job's file, of which only the beginning may be there.
bool holds_other_files(const fs::path& folder, std::error_code& error) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename() != std::string(job_file) + ".new") return true;
  return false;
}

}  // namespace

void QuantizedFolder::claim(const fs::path& folder, std::string_view job) {
  folder_ = folder;
  std::error_code error;
  fs::create_directory(folder, error);  // a folder above it that is missing may be a mistake
  if (error) {
    throw Error(ErrorKind::runtime,
                fmt::format("{}: can't be made: {}", folder.string(), error.message()));
  }
  if (is_listed(folder / job_file)) {
    if (read_whole_file(folder / job_file, std::size_t{1} << 20) != job) {
      throw Error(ErrorKind::usage,
                  fmt::format("{} holds what another command began ({} says which): give another "
                              "folder, or remove this one",
                              folder.string(), job_file));
    }
  } else if (holds_other_files(folder, error) || error) {
    throw Error(ErrorKind::usage,
                fmt::format("{} {}: give a folder that is empty, or not there yet", folder.string(),
                            error ? "can't be read" : "is not empty"));
  }
  std::size_t missing = 0;
  for (const Shard& shard : shards_) missing += is_there(shard) ? 0 : shard.bytes;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < missing) {
    throw Error(ErrorKind::runtime,
                fmt::format("{}: {} are to be written, the file system has {}", folder.string(),
                            bytes_text(missing), bytes_text(space.available)));
  }
  job_ = job;
}

bool QuantizedFolder::is_there(const Shard& shard) const {
  std::error_code error;
  return fs::file_size(folder_ / shard.file, error) == shard.bytes && !error;
}

bool QuantizedFolder::has_all_weights() const {
  return std::ranges::all_of(shards_, [&](const Shard& shard) { return is_there(shard); });
}

float QuantizedFolder::largest_of(kernels::Queue& queue, const models::PlannedMatrix& matrix) {
  if (format_.written.levels != kernels::ScaledLevels::e2m1) return 0;
  const auto known = largest_.find(matrix.joined);
  if (known != largest_.end()) return known->second;
  float largest = 0;
  models::FileWeights weights(index_);
  for (const models::PlannedMatrix& one : matrices_) {
    if (one.joined != matrix.joined || one.experts > 1) continue;
    const std::string& name = index_.name(one.key);
    largest = std::max(largest,
                       models::largest_size(
                           queue, weights.matrix(one.key, 1, one.rows, one.columns, false), name));
  }
  return largest_[matrix.joined] = largest;
}

void QuantizedFolder::write_shard(const Shard& shard, kernels::Queue& queue,
                                  const Importance& importance,
                                  const std::function<void(std::size_t)>& progress) {
  models::FileWeights weights(index_);
  AtomicFile file(folder_ / shard.file, FileAccess::umask);
  file.write(shard.header);
  for (std::size_t i = shard.first; i < shard.end; ++i) {
    const Entry& entry = entries_[i];
    if (entry.matrix == nullptr) {
      file.write(files_.view(entry.name).bytes);
    } else {
      const auto& [key, rows, columns, experts, is_linear, joined] = *entry.matrix;
      const float largest = largest_of(queue, *entry.matrix);
      file.write(models::written_matrix(queue, format_.written,
                                        weights.matrix(key, 1, rows, columns, false),
                                        importance(key, columns), largest, entry.name));
    }
    files_.drop(entry.name);
    progress(entry.bytes);
  }
  file.commit();
}

void QuantizedFolder::write(kernels::Queue& queue, const Importance& importance,
                            const std::function<void(std::size_t)>& progress) {
  // Calibration took its time: another command may have written there since.
  claim(fs::path(folder_), std::string(job_));
  if (!is_listed(folder_ / job_file)) {
    write_atomically(folder_ / job_file, job_, FileAccess::umask);
  }
  for (const std::string_view word : words_of(copied_files)) {
    const std::string name(word);
    std::optional<std::string> bytes;
    if (!source_.folder()) {
      bytes = source_.read(name);
    } else if (is_listed(*source_.folder() / name)) {
      bytes = read_whole_file(*source_.folder() / name, copied_bytes_max);
    }
    if (bytes) write_atomically(folder_ / name, *bytes, FileAccess::umask);
  }
  for (const Shard& shard : shards_) {
    if (!is_there(shard)) {
      write_shard(shard, queue, importance, progress);
    } else {
      progress(shard.bytes - shard.header.size());
    }
  }
  if (shards_.size() > 1) {
    write_atomically(folder_ / "model.safetensors.index.json", index_text(), FileAccess::umask);
  }
  write_atomically(folder_ / "config.json", config_text(), FileAccess::umask);
  fs::remove(folder_ / job_file);
}

std::string QuantizedFolder::index_text() const {
  Json map = Json::object();
  for (const Shard& shard : shards_) {
    for (std::size_t i = shard.first; i < shard.end; ++i) {
      for (const models::WrittenTensor& tensor : entries_[i].tensors) map[tensor.name] = shard.file;
    }
  }
  return to_text({{"metadata", {{"total_size", bytes_}}}, {"weight_map", std::move(map)}});
}

/// The model's own text with one more member: numbers that no parser here would keep stay as they
/// are.
std::string QuantizedFolder::config_text() const {
  using kernels::ScaledLevels;
  const models::WrittenFormat& written = format_.written;
  const bool is_nvfp4 = written.levels == ScaledLevels::e2m1;
  Json weights = {{"num_bits", written.levels == ScaledLevels::int8 ? 8 : 4},
                  {"type", is_nvfp4 ? "float" : "int"},
                  {"symmetric", true},
                  {"dynamic", false},
                  {"strategy", is_nvfp4            ? "tensor_group"
                               : written.group > 0 ? "group"
                                                   : "channel"},
                  {"group_size", written.group > 0 ? Json(written.group) : Json()}};
  if (is_nvfp4) weights["scale_dtype"] = "torch.float8_e4m3fn";
  Json ignored = modules_;
  if (std::ranges::find(modules_, "lm_head") == modules_.end()) ignored.push_back("lm_head");
  const Json group = {{"targets", {"Linear"}},
                      {"weights", std::move(weights)},
                      {"input_activations", Json()},
                      {"output_activations", Json()},
                      {"format", written.spelling()}};
  const Json quantization = {
      {"quant_method", "compressed-tensors"}, {"format", written.spelling()},
      {"quantization_status", "compressed"},  {"config_groups", {{"group_0", group}}},
      {"ignore", std::move(ignored)},         {"kv_cache_scheme", Json()}};
  Json config = parse_json(config_, "config.json");
  if (config.contains("quantization_config")) {  // null
    config["quantization_config"] = quantization;
    return to_text(config) + "\n";
  }
  const std::size_t end = config_.rfind('}');
  require(end != std::string::npos, "quantize: config.json is an object");
  return fmt::format("{},\n  \"quantization_config\": {}\n}}\n",
                     config_.substr(0, config_.find_last_not_of(" \t\r\n", end - 1) + 1),
                     to_text(quantization));
}

std::string QuantizedFolder::kept_text() const {
  std::vector<std::string> kept;
  for (const auto& [kind, count] : kept_) kept.push_back(fmt::format("{} ({})", kind, count));
  constexpr std::size_t shown = 3;
  for (std::size_t i = 0; i < std::min(shown, odd_.size()); ++i) kept.push_back(odd_[i]);
  if (odd_.size() > shown) kept.push_back(fmt::format("{} more such", odd_.size() - shown));
  return fmt::format("{}", fmt::join(kept, ", "));
}

std::string QuantizedFolder::summary() const {
  const auto bits = [](std::size_t bytes, double numbers) {
    return 8 * static_cast<double>(bytes) / std::max(numbers, 1.0);
  };
  return fmt::format(
      "{}: {} matrices in {} ({:.3f} bits a number), {} in all ({:.2f} bits a number); as "
      "published: {}",
      folder_.string(), coded_, format_.name, bits(coded_bytes_, coded_numbers_),
      bytes_text(bytes_), bits(bytes_, numbers_), kept_text());
}

}  // namespace hyb::app
