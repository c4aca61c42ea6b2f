#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t rank_max = 64;
constexpr std::size_t other_dtype_max = 32;

/// SAX handler for
/// {name: {"dtype": text, "shape": [n, ...], "data_offsets": [n, n]}, "__metadata__": {text:
/// text}}. A tree would take ten times the time and the memory.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, TensorHeader& header)
      : path_(path), header_(header) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("true or false"); }
  bool number_integer(std::int64_t value) { return unexpected(fmt::format("number {}", value)); }
  bool number_float(double value, const std::string&) {
    return unexpected(fmt::format("number {}", value));
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }

  bool number_unsigned(std::uint64_t value) {
    switch (place_) {
      case Place::shape:
        return add_dimension(value);
      case Place::offsets:
        return add_offset(value);
      default:
        return unexpected(fmt::format("number {}", value));
    }
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("text " + quote_name(value));
    const std::optional<DType> dtype = dtype_from_name(value);
    other_dtype_.clear();
    if (!dtype) {
      if (value.empty()) fail("dtype is empty");
      const std::string quoted = quote_name(value.substr(0, other_dtype_max));
      other_dtype_ = quoted.substr(1, quoted.size() - 2);
    }
    dtype_ = dtype.value_or(DType::u8);
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) return enter(Place::header);
    if (place_ != Place::header) return unexpected("an object");
    if (is_metadata_) return enter(Place::metadata);
    dtype_.reset();
    shape_.reset();
    offsets_.clear();
    has_offsets_ = false;
    return enter(Place::tensor);
  }

  bool end_object() {
    if (place_ == Place::tensor) finish_tensor();
    return enter(place_ == Place::header ? Place::outside : Place::header);
  }

  bool start_array(std::size_t) {
    if (place_ != Place::tensor || key_ == "dtype") return unexpected("a list");
    if (key_ == "shape") {
      shape_.emplace();
      return enter(Place::shape);
    }
    has_offsets_ = true;
    return enter(Place::offsets);
  }

  bool end_array() { return enter(Place::tensor); }

  bool key(std::string& value) {
    if (place_ == Place::header) return begin_entry(value);
    if (place_ == Place::tensor) {
      const bool repeated = (value == "dtype" && dtype_) || (value == "shape" && shape_) ||
                            (value == "data_offsets" && has_offsets_);
      if (repeated) fail("duplicate key " + quote_name(value));
      if (value != "dtype" && value != "shape" && value != "data_offsets") {
        fail("key " + quote_name(value) + " is not dtype, shape or data_offsets");
      }
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    fail_as_json(position);
  }

  [[noreturn]] void fail_as_json(std::size_t position) const {
    throw Error(ErrorKind::model,
                fmt::format("{}: header: not valid JSON in UTF-8 at byte {} of the header",
                            path_.string(), position));
  }

 private:
  enum class Place { outside, header, metadata, tensor, shape, offsets };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  [[noreturn]] void fail(const std::string& text) const {
    const std::string where = is_metadata_ ? "__metadata__" : "tensor " + quote_name(name_);
    throw Error(ErrorKind::model,
                fmt::format("{}: {}: {}", path_.string(), has_entry_ ? where : "header", text));
  }

  bool unexpected(const std::string& what) const {
    switch (place_) {
      case Place::outside:
        fail("must be a JSON object, is " + what);
      case Place::header:
        fail("must be an object, is " + what);
      case Place::metadata:
        fail("value of " + quote_name(key_) + " must be text, is " + what);
      case Place::tensor:
        fail(key_ + (key_ == "dtype" ? " must be text" : " must be a list") + ", is " + what);
      case Place::shape:
        fail("shape must hold whole numbers from 0 to 2^63-1, has " + what);
      case Place::offsets:
        fail("data_offsets must hold whole numbers from 0 on, has " + what);
    }
    return false;
  }

  bool begin_entry(std::string& name) {
    has_entry_ = true;
    name_ = std::move(name);
    is_metadata_ = name_ == "__metadata__";
    return true;
  }

  bool add_dimension(std::uint64_t value) {
    if (value > std::uint64_t{INT64_MAX}) return unexpected(fmt::format("number {}", value));
    if (shape_->size() >= rank_max) fail(fmt::format("more than {} dimensions", rank_max));
    shape_->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    if (offsets_.size() >= 2) fail("data_offsets must be two numbers, has more");
    offsets_.push_back(value);
    return true;
  }

  void finish_tensor() {
    if (!dtype_) fail("dtype is missing");
    if (!shape_) fail("shape is missing");
    if (!has_offsets_) fail("data_offsets is missing");
    if (offsets_.size() != 2) {
      fail(fmt::format("data_offsets must be two numbers, has {}", offsets_.size()));
    }
    if (offsets_[0] > offsets_[1]) {
      fail(fmt::format("data_offsets [{}, {}] end before they begin", offsets_[0], offsets_[1]));
    }
    check_size();
    header_.tensors.push_back({.name = std::move(name_),
                               .dtype = *dtype_,
                               .shape = std::move(*shape_),
                               .begin = offsets_[0],
                               .end = offsets_[1]});
    if (!other_dtype_.empty()) {
      header_.tensors.back().other_dtype = std::move(other_dtype_);
      header_.tensors.back().fault = "its dtype is not read";
    }
    name_.clear();
  }

  void check_size() const {
    if (!other_dtype_.empty()) return;
    std::uint64_t bytes = size_of(*dtype_);
    for (const std::int64_t dimension : *shape_) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) {
        fail(fmt::format("shape [{}] of {} overflows 2^64 bytes", fmt::join(*shape_, ", "),
                         name_of(*dtype_)));
      }
    }
    const std::uint64_t stated = offsets_[1] - offsets_[0];
    if (bytes != stated) {
      fail(fmt::format("shape [{}] of {} is {} bytes, data_offsets say {}",
                       fmt::join(*shape_, ", "), name_of(*dtype_), bytes, stated));
    }
  }

  const std::filesystem::path& path_;
  TensorHeader& header_;
  Place place_ = Place::outside;
  bool has_entry_ = false;
  bool is_metadata_ = false;
  std::string name_;
  std::string key_;
  std::optional<DType> dtype_;
  std::string other_dtype_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::vector<std::uint64_t> offsets_;
  bool has_offsets_ = false;
};

/// Sorts by offset and requires that the tensors cover the data without gap or overlap.
void check_coverage(TensorHeader& header, std::uint64_t data_bytes,
                    const std::filesystem::path& path) {
  const auto by_offset = [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  if (!std::is_sorted(header.tensors.begin(), header.tensors.end(), by_offset)) {
    std::sort(header.tensors.begin(), header.tensors.end(), by_offset);
  }
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != expected) {
      throw Error(ErrorKind::model,
                  fmt::format("{}: tensor {}: {}: data begin at {}, the tensor before ends at {}",
                              path.string(), quote_name(tensor.name),
                              tensor.begin < expected ? "overlap" : "gap", tensor.begin, expected));
    }
    expected = tensor.end;
  }
  if (expected == data_bytes) return;
  const std::string subject =
      header.tensors.empty() ? "header" : "tensor " + quote_name(header.tensors.back().name);
  throw Error(
      ErrorKind::model,
      fmt::format("{}: {}: the last tensor ends at data byte {}, the file at {}; {}", path.string(),
                  subject, expected, data_bytes,
                  expected > data_bytes ? "the file is truncated" : "the file has trailing bytes"));
}

}  // namespace

TensorHeader parse_tensor_header(std::string_view text, std::uint64_t data_bytes,
                                 const std::filesystem::path& path) {
  TensorHeader header;
  HeaderReader reader(path, header);
  if (!text.starts_with('{')) {
    throw Error(ErrorKind::model, path.string() + ": header: must begin with '{'");
  }
  // The parser would take a NUL byte for the end of the text.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) reader.fail_as_json(nul);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  check_coverage(header, data_bytes, path);
  return header;
}

namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t header_bytes_max = 100'000'000;

[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& text) {
  throw Error(ErrorKind::model, path.string() + ": header: " + text);
}

std::uint64_t read_header_length(const File& file) {
  if (file.size() < length_bytes) {
    refuse_file(file.path(),
                fmt::format("the file has {} bytes, a safetensors file has at least {}",
                            file.size(), length_bytes));
  }
  std::array<std::byte, length_bytes> raw;
  file.read(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | std::uint64_t(raw[i]);
  if (length == 0) refuse_file(file.path(), "its length is 0");
  if (length > header_bytes_max) {
    refuse_file(file.path(), fmt::format("its length of {} bytes is over the limit of {}", length,
                                         header_bytes_max));
  }
  if (length > file.size() - length_bytes) {
    refuse_file(file.path(),
                fmt::format("its length of {} bytes goes past the end of the file of {}", length,
                            file.size()));
  }
  return length;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  refuse_pointer(file_);
  const std::uint64_t length = read_header_length(file_);
  std::string text(static_cast<std::size_t>(length), '\0');
  file_.read(length_bytes, std::as_writable_bytes(std::span(text)));
  data_offset_ = length_bytes + length;
  TensorHeader header = parse_tensor_header(text, file_.size() - data_offset_, path);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);

  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name = [this](std::uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    if (name(by_name_[i - 1]) != name(by_name_[i])) continue;
    for (const std::uint32_t twin : {by_name_[i - 1], by_name_[i]}) {
      tensors_[twin].fault = "its name is there twice";
    }
  }
}

void SafetensorsFile::map() {
  if (!mapping_) mapping_.emplace(file_);
}

TensorView SafetensorsFile::view(const TensorInfo& tensor) const {
  require(mapping_.has_value(), "SafetensorsFile::view: map() comes first");
  const std::span<const std::byte> data = mapping_->bytes().subspan(data_offset_);
  return {.dtype = tensor.dtype,
          .shape = tensor.shape,
          .bytes = data.subspan(tensor.begin, tensor.size_bytes())};
}

std::optional<TensorView> SafetensorsFile::view(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) return std::nullopt;
  return view(*tensor);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto place = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (place == by_name_.end() || tensors_[*place].name != name) return nullptr;
  return &tensors_[*place];
}

void SafetensorsFile::drop(const TensorInfo& tensor) const {
  require(mapping_.has_value(), "SafetensorsFile::drop: map() comes first");
  mapping_->drop(data_offset_ + tensor.begin, tensor.size_bytes());
}

}  // namespace hyb
