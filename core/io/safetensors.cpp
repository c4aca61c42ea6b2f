#include "core/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/io/quote_name.h"
#include "core/io/tensor_header.h"

namespace hyb {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t header_bytes_max = 100'000'000;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& text) {
  throw Error(ErrorKind::model, path.string() + ": header: " + text);
}

std::uint64_t read_header_length(const File& file) {
  if (file.size() < length_bytes) {
    fail(file.path(), fmt::format("the file has {} bytes, a safetensors file has at least {}",
                                  file.size(), length_bytes));
  }
  std::array<std::byte, length_bytes> raw;
  file.read(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | std::uint64_t(raw[i]);
  if (length == 0) fail(file.path(), "its length is 0");
  if (length > header_bytes_max) {
    fail(file.path(),
         fmt::format("its length of {} bytes is over the limit of {}", length, header_bytes_max));
  }
  if (length > file.size() - length_bytes) {
    fail(file.path(), fmt::format("its length of {} bytes goes past the end of the file of {}",
                                  length, file.size()));
  }
  return length;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
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
  const auto twin =
      std::adjacent_find(by_name_.begin(), by_name_.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
  if (twin != by_name_.end()) {
    throw Error(ErrorKind::model, fmt::format("{}: tensor {}: duplicate key", path.string(),
                                              quote_name(name(*twin))));
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
