#include "core/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb {
namespace {

constexpr std::array<GgufBlock, 35> blocks = {{
    {GgufType::f32, "F32", 1, 4},
    {GgufType::f16, "F16", 1, 2},
    {GgufType::q4_0, "Q4_0", 32, 18},
    {GgufType::q4_1, "Q4_1", 32, 20},
    {GgufType::q5_0, "Q5_0", 32, 22},
    {GgufType::q5_1, "Q5_1", 32, 24},
    {GgufType::q8_0, "Q8_0", 32, 34},
    {GgufType::q8_1, "Q8_1", 32, 36},
    {GgufType::q2_k, "Q2_K", 256, 84},
    {GgufType::q3_k, "Q3_K", 256, 110},
    {GgufType::q4_k, "Q4_K", 256, 144},
    {GgufType::q5_k, "Q5_K", 256, 176},
    {GgufType::q6_k, "Q6_K", 256, 210},
    {GgufType::q8_k, "Q8_K", 256, 292},
    {GgufType::iq2_xxs, "IQ2_XXS", 256, 66},
    {GgufType::iq2_xs, "IQ2_XS", 256, 74},
    {GgufType::iq3_xxs, "IQ3_XXS", 256, 98},
    {GgufType::iq1_s, "IQ1_S", 256, 50},
    {GgufType::iq4_nl, "IQ4_NL", 32, 18},
    {GgufType::iq3_s, "IQ3_S", 256, 110},
    {GgufType::iq2_s, "IQ2_S", 256, 82},
    {GgufType::iq4_xs, "IQ4_XS", 256, 136},
    {GgufType::i8, "I8", 1, 1},
    {GgufType::i16, "I16", 1, 2},
    {GgufType::i32, "I32", 1, 4},
    {GgufType::i64, "I64", 1, 8},
    {GgufType::f64, "F64", 1, 8},
    {GgufType::iq1_m, "IQ1_M", 256, 56},
    {GgufType::bf16, "BF16", 1, 2},
    {GgufType::tq1_0, "TQ1_0", 256, 54},
    {GgufType::tq2_0, "TQ2_0", 256, 66},
    {GgufType::mxfp4, "MXFP4", 32, 17},
    {GgufType::nvfp4, "NVFP4", 64, 36},
    {GgufType::q1_0, "Q1_0", 128, 18},
    {GgufType::q2_0, "Q2_0", 64, 18},
}};

constexpr std::uint64_t keys_max = 65'536;
constexpr std::uint64_t tensors_max = 1'000'000;
constexpr std::uint64_t key_bytes_max = 65'535;
constexpr std::uint64_t name_bytes_max = 255;
constexpr std::uint32_t dimensions_max = 4;
constexpr std::uint64_t alignment_min = 8, alignment_max = std::uint64_t{1} << 20;
constexpr std::uint64_t alignment_usual = 32;
/// A key has a length, a type and a byte; a tensor three lengths, a dimension's count and a type.
constexpr std::uint64_t key_bytes_min = 8 + 1 + 4 + 1;
constexpr std::uint64_t tensor_bytes_min = 8 + 1 + 4 + 4 + 8;

/// Thrown where the front of a file ends before its header does.
struct FrontEnds {};

}  // namespace

const GgufBlock* gguf_block(std::uint32_t type) {
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const GgufBlock& block) {
    return static_cast<std::uint32_t>(block.type) == type;
  });
  return found == blocks.end() ? nullptr : &*found;
}

std::int64_t GgufTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

/// Reads on from a place in the front of a file; what lies after it is not there yet, or never.
class GgufHeaderReader {
 public:
  GgufHeaderReader(std::string_view front, std::uint64_t file_bytes,
                   const std::filesystem::path& path)
      : front_(front),
        end_(std::min<std::uint64_t>(file_bytes, gguf_header_max)),
        file_bytes_(file_bytes),
        path_(path),
        header_{.metadata = GgufMetadata(path), .tensors = {}} {}

  GgufHeader read() {
    check_version();
    const std::uint64_t tensors = read_number<std::uint64_t>("the number of tensors");
    const std::uint64_t keys = read_number<std::uint64_t>("the number of keys");
    check_count(tensors, "tensors", tensors_max, tensor_bytes_min);
    check_count(keys, "keys", keys_max, key_bytes_min);
    for (std::uint64_t i = 0; i < keys; ++i) read_key();
    read_alignment();
    header_.tensors.reserve(tensors);
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    check_names();
    header_.data_offset = rounded_up(at_);
    // Files without tensors need not be padded.
    if (tensors > 0) check_data();
    return std::move(header_);
  }

 private:
  [[noreturn]] void refuse(const std::string& text) const {
    throw Error(ErrorKind::model, fmt::format("{}: {}", path_.string(), text));
  }
  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& text) const {
    refuse(fmt::format("tensor {}: {}", quote_name(name), text));
  }

  std::string_view read_bytes(std::uint64_t bytes, const char* what) {
    if (bytes > end_ - at_) {
      if (end_ < file_bytes_) {
        refuse(fmt::format("{} of {} bytes ends after the {} that a header may have", what, bytes,
                           end_));
      }
      refuse(fmt::format("{} of {} bytes goes past the end of the file of {}", what, bytes,
                         file_bytes_));
    }
    if (bytes > front_.size() - at_) throw FrontEnds{};
    const std::string_view read = front_.substr(at_, bytes);
    at_ += bytes;
    return read;
  }

  template <typename Number>
  Number read_number(const char* what) {
    static_assert(std::endian::native == std::endian::little);
    Number number;
    std::memcpy(&number, read_bytes(sizeof number, what).data(), sizeof number);
    return number;
  }

  /// Length and bytes.
  std::string_view read_text(const char* what) {
    const auto length = read_number<std::uint64_t>(what);
    return read_bytes(length, what);
  }

  void check_version() {
    if (read_bytes(4, "the magic number") != "GGUF") refuse("not a GGUF file: it begins otherwise");
    const auto version = read_number<std::uint32_t>("the version");
    if ((version & 0xffffU) == 0 && version != 0) {
      refuse("a big-endian GGUF file, which is not read; get the little-endian one");
    }
    if (version != 2 && version != 3) {
      refuse(fmt::format("GGUF version {}, versions 2 and 3 are read; convert the model again",
                         version));
    }
  }

  void check_count(std::uint64_t count, const char* what, std::uint64_t most,
                   std::uint64_t bytes_each) const {
    if (count > most) refuse(fmt::format("{} {}, at most {} are read", count, what, most));
    if (count > (end_ - at_) / bytes_each) {
      refuse(fmt::format("{} {} do not fit into the file of {} bytes", count, what, file_bytes_));
    }
  }

  void read_key() {
    const std::string_view key = read_text("a key");
    if (key.empty() || key.size() > key_bytes_max) {
      refuse(fmt::format("a key of {} bytes, keys have 1 to {}", key.size(), key_bytes_max));
    }
    GgufValue value = {.type = read_type(key), .is_list = false, .count = 1, .bytes = {}};
    if (value.type == GgufValueType::list) {
      value.is_list = true;
      value.type = read_type(key);
      value.count = read_number<std::uint64_t>("the length of a list");
      if (value.type == GgufValueType::list) {
        refuse(fmt::format("key {}: a list of lists", quote_name(key)));
      }
    }
    value.bytes = read_value(key, value);
    if (!header_.metadata.add(key, value)) {
      refuse(fmt::format("key {} is there twice", quote_name(key)));
    }
  }

  GgufValueType read_type(std::string_view key) {
    const auto type = read_number<std::uint32_t>("a type");
    if (type >= gguf_value_bytes.size()) {
      refuse(fmt::format("key {}: values have types 0 to {}, it has {}", quote_name(key),
                         gguf_value_bytes.size() - 1, type));
    }
    return static_cast<GgufValueType>(type);
  }

  std::string_view read_value(std::string_view key, const GgufValue& value) {
    const std::uint64_t begin = at_;
    if (value.type == GgufValueType::text) {
      check_list(key, value.count, 8);
      for (std::uint64_t i = 0; i < value.count; ++i) read_text("a text");
      return front_.substr(begin, at_ - begin);
    }
    const std::uint64_t bytes = gguf_value_bytes.at(static_cast<std::size_t>(value.type));
    check_list(key, value.count, bytes);
    const std::string_view read = read_bytes(value.count * bytes, "a value");
    if (value.type == GgufValueType::boolean &&
        std::any_of(read.begin(), read.end(), [](char c) { return c != 0 && c != 1; })) {
      refuse(fmt::format("key {}: true is 1 and false 0, it has another byte", quote_name(key)));
    }
    return read;
  }

  void check_list(std::string_view key, std::uint64_t count, std::uint64_t bytes_each) const {
    if (count <= (end_ - at_) / bytes_each) return;
    refuse(fmt::format("key {}: a list of {} values does not fit into the {} of {} bytes",
                       quote_name(key), count, end_ < file_bytes_ ? "header" : "file", end_));
  }

  void read_alignment() {
    const std::optional<std::int64_t> given = header_.metadata.integer("general.alignment");
    if (!given) return;
    const auto alignment = static_cast<std::uint64_t>(*given);
    if (!std::has_single_bit(alignment) || alignment < alignment_min || alignment > alignment_max) {
      refuse(fmt::format("general.alignment must be a power of two from {} to {}, is {}",
                         alignment_min, alignment_max, *given));
    }
    alignment_ = alignment;
  }

  void read_tensor() {
    GgufTensor tensor = {.name = std::string(read_text("a tensor's name")),
                         .type = 0,
                         .shape = {},
                         .begin = 0,
                         .bytes = 0};
    if (tensor.name.empty() || tensor.name.size() > name_bytes_max) {
      refuse(fmt::format("a tensor's name of {} bytes, names have 1 to {}", tensor.name.size(),
                         name_bytes_max));
    }
    const auto dimensions = read_number<std::uint32_t>("a tensor's dimensions");
    if (dimensions > dimensions_max) {
      refuse_tensor(tensor.name,
                    fmt::format("{} dimensions, at most {} are read", dimensions, dimensions_max));
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto length = read_number<std::uint64_t>("a dimension");
      if (length == 0 || length > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        refuse_tensor(tensor.name, fmt::format("a dimension of {}", length));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(length));
    }
    tensor.type = read_number<std::uint32_t>("a tensor's type");
    tensor.begin = read_number<std::uint64_t>("a tensor's offset");
    if (tensor.begin % alignment_ != 0) {
      refuse_tensor(tensor.name,
                    fmt::format("its offset {} is no multiple of {}", tensor.begin, alignment_));
    }
    set_bytes(tensor);
    header_.tensors.push_back(std::move(tensor));
  }

  void set_bytes(GgufTensor& tensor) const {
    const GgufBlock* block = gguf_block(tensor.type);
    if (block == nullptr) {
      tensor.fault = fmt::format("its type {} is not read", tensor.type);
      return;
    }
    std::uint64_t elements = 1;
    for (const std::int64_t length : tensor.shape) {
      if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(length), &elements)) {
        refuse_tensor(tensor.name, fmt::format("shape [{}] overflows 2^64 elements",
                                               fmt::join(tensor.shape, ", ")));
      }
    }
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (columns % block->elements != 0) {
      refuse_tensor(tensor.name, fmt::format("rows of {} elements are no whole blocks of {}, of {}",
                                             columns, block->elements, block->name));
    }
    if (__builtin_mul_overflow(elements / block->elements, std::uint64_t{block->bytes},
                               &tensor.bytes)) {
      refuse_tensor(tensor.name, fmt::format("shape [{}] of {} overflows 2^64 bytes",
                                             fmt::join(tensor.shape, ", "), block->name));
    }
  }

  void check_names() const {
    std::vector<std::string_view> names;
    names.reserve(header_.tensors.size());
    for (const GgufTensor& tensor : header_.tensors) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twin = std::adjacent_find(names.begin(), names.end());
    if (twin != names.end()) refuse_tensor(std::string(*twin), "its name is there twice");
  }

  /// `bytes` is less than 2^28.
  std::uint64_t rounded_up(std::uint64_t bytes) const {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }

  void check_data() {
    std::stable_sort(header_.tensors.begin(), header_.tensors.end(),
                     [](const GgufTensor& a, const GgufTensor& b) { return a.begin < b.begin; });
    if (header_.data_offset > file_bytes_) refuse("the file ends before its data");
    const std::uint64_t data_bytes = file_bytes_ - header_.data_offset;
    std::uint64_t end = 0;
    for (const GgufTensor& tensor : header_.tensors) {
      if (tensor.begin < end) refuse_tensor(tensor.name, "its data overlaps another tensor's");
      if (tensor.begin > data_bytes || tensor.bytes > data_bytes - tensor.begin) {
        refuse_tensor(tensor.name,
                      fmt::format("its {} bytes at data byte {} go past the end of the file, which "
                                  "has {} bytes of data; was the download completed?",
                                  tensor.bytes, tensor.begin, data_bytes));
      }
      end = tensor.begin + tensor.bytes;
    }
  }

  std::string_view front_;
  std::uint64_t end_;  ///< of what may be header
  std::uint64_t file_bytes_;
  const std::filesystem::path& path_;
  std::uint64_t at_ = 0;
  std::uint64_t alignment_ = alignment_usual;
  GgufHeader header_;
};

std::optional<GgufHeader> parse_gguf_header(std::string_view front, std::uint64_t file_bytes,
                                            const std::filesystem::path& path) {
  try {
    return GgufHeaderReader(front, file_bytes, path).read();
  } catch (const FrontEnds&) {
    return std::nullopt;
  }
}

namespace {

/// Most headers are short but for the vocabulary: what is read into `front` grows until all of it
/// is there.
GgufHeader read_header(const File& file, std::vector<char>& front) {
  refuse_pointer(file);
  for (std::size_t bytes = std::size_t{1} << 20;; bytes *= 4) {
    const std::size_t known = front.size();
    front.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, file.size())));
    file.read(known, std::as_writable_bytes(std::span(front)).subspan(known));
    auto header = parse_gguf_header({front.data(), front.size()}, file.size(), file.path());
    if (header) return std::move(*header);
  }
}

}  // namespace

std::string GgufSplitName::of(std::uint64_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part, count);
}

std::optional<GgufSplitName> gguf_split_name(const std::string& name) {
  constexpr std::string_view form = "-00001-of-00003.gguf";
  if (name.size() <= form.size()) return std::nullopt;
  const std::string_view end = std::string_view(name).substr(name.size() - form.size());
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool is_digit = end[i] >= '0' && end[i] <= '9';
    if (form[i] >= '0' && form[i] <= '9' ? !is_digit : end[i] != form[i]) return std::nullopt;
  }
  const GgufSplitName split = {.prefix = name.substr(0, name.size() - form.size()),
                               .number = std::stoull(std::string(end.substr(1, 5))),
                               .count = std::stoull(std::string(end.substr(10, 5)))};
  const bool is_part = split.number >= 1 && split.number <= split.count;
  return is_part ? std::optional(split) : std::nullopt;
}

GgufFiles::Part::Part(const std::filesystem::path& path)
    : file(path), header(read_header(file, front)) {}

GgufFiles::GgufFiles(const std::filesystem::path& path) {
  const std::optional<GgufSplitName> split = gguf_split_name(path.filename().string());
  const std::uint64_t count = split ? split->count : 1;
  for (std::uint64_t i = 1; i <= count; ++i) {
    open_part(split ? path.parent_path() / split->of(i) : path, i, count);
  }
  for (std::uint32_t part = 0; part < parts_.size(); ++part) {
    const std::vector<GgufTensor>& tensors = parts_[part].header.tensors;
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      if (places_.try_emplace(tensors[i].name, Place{part, i}).second) continue;
      throw Error(ErrorKind::model,
                  fmt::format("{}: tensor {}: also in {}", parts_[part].file.path().string(),
                              quote_name(tensors[i].name), path_of(tensors[i].name).string()));
    }
  }
  const auto total = metadata().integer("split.tensors.count");
  if (total && *total != static_cast<std::int64_t>(places_.size())) {
    throw Error(
        ErrorKind::model,
        fmt::format("{} says {}, {} hold {}", metadata().place("split.tensors.count"), *total,
                    counted(static_cast<std::int64_t>(count), "part"), places_.size()));
  }
}

void GgufFiles::open_part(const std::filesystem::path& path, std::uint64_t number,
                          std::uint64_t count) {
  if (number > 1 && !is_listed(path)) {
    throw Error(ErrorKind::model,
                fmt::format("{}: part {} of {} is not there; was the download completed?",
                            path.string(), number, count));
  }
  const GgufMetadata& keys = parts_.emplace_back(path).header.metadata;
  const std::int64_t stated_count = keys.integer("split.count").value_or(1);
  // Unsigned: the file may say the largest number.
  const auto stated_number = static_cast<std::uint64_t>(keys.integer("split.no").value_or(0)) + 1;
  if (stated_count == static_cast<std::int64_t>(count) && stated_number == number) {
    return;
  }
  throw Error(ErrorKind::model,
              fmt::format("{}: it says that it is part {} of {}, by its name it is part {} of {}; "
                          "parts are PREFIX-00001-of-{:05}.gguf and so on",
                          path.string(), stated_number, stated_count, number, count,
                          std::max<std::int64_t>(stated_count, 1)));
}

const GgufMetadata& GgufFiles::metadata() const { return parts_.front().header.metadata; }

std::vector<const GgufTensor*> GgufFiles::tensors() const {
  std::vector<const GgufTensor*> tensors;
  tensors.reserve(places_.size());
  for (const Part& part : parts_) {
    for (const GgufTensor& tensor : part.header.tensors) tensors.push_back(&tensor);
  }
  return tensors;
}

const GgufTensor* GgufFiles::find(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  return &parts_[found->second.part].header.tensors[found->second.tensor];
}

const GgufFiles::Place& GgufFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  require(found != places_.end(), "GgufFiles: the tensor exists");
  return found->second;
}

const std::filesystem::path& GgufFiles::path_of(std::string_view name) const {
  return parts_[place(name).part].file.path();
}

std::vector<std::byte> GgufFiles::read(std::string_view name) const {
  const auto [part, number] = place(name);
  const auto& [file, front, header, mapping] = parts_[part];
  std::vector<std::byte> bytes(header.tensors[number].bytes);
  file.read(header.data_offset + header.tensors[number].begin, bytes);
  return bytes;
}

void GgufFiles::map() {
  for (Part& part : parts_) part.mapping.emplace(part.file);
}

std::span<const std::byte> GgufFiles::view(std::string_view name) const {
  const auto [part, number] = place(name);
  const GgufTensor& tensor = parts_[part].header.tensors[number];
  require(parts_[part].mapping.has_value(), "GgufFiles::view: map() comes first");
  require(tensor.fault.empty(), "GgufFiles::view: the tensor has no fault");
  return parts_[part].mapping->bytes().subspan(parts_[part].header.data_offset + tensor.begin,
                                               tensor.bytes);
}

void GgufFiles::drop(std::string_view name) const {
  const auto [part, number] = place(name);
  const GgufTensor& tensor = parts_[part].header.tensors[number];
  require(parts_[part].mapping.has_value(), "GgufFiles::drop: map() comes first");
  parts_[part].mapping->drop(parts_[part].header.data_offset + tensor.begin, tensor.bytes);
}

std::vector<std::filesystem::path> GgufFiles::paths() const {
  std::vector<std::filesystem::path> paths;
  for (const Part& part : parts_) paths.push_back(part.file.path());
  return paths;
}

std::uint64_t GgufFiles::header_checksum() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) {
    const std::size_t bytes = std::min<std::size_t>(part.front.size(), part.header.data_offset);
    sum = checksum(std::as_bytes(std::span(part.front).first(bytes)), sum);
  }
  return sum;
}

std::uint64_t GgufFiles::bytes() const {
  std::uint64_t bytes = 0;
  for (const GgufTensor* tensor : tensors()) bytes += tensor->bytes;
  return bytes;
}

}  // namespace hyb
