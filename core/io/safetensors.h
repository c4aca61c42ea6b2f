#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/io/file.h"
#include "core/io/mapped_file.h"

namespace hyb {

struct GgufBlock;

/// One tensor as the header of a file states it.
struct TensorInfo {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;  ///< empty: a scalar
  std::uint64_t begin;              ///< first byte, relative to the end of the header
  std::uint64_t end;                ///< one past the last byte
  /// Its dtype, where that is none of DType ("F4", "F8_E8M0", "Q4_K"); `dtype` is then u8.
  std::string other_dtype = {};
  const GgufBlock* block = nullptr;  ///< of a GGUF file, where rows are stored in blocks
  /// Why it can't be used: "its dtype is not read", "its name is there twice"; "" for most.
  std::string fault = {};

  std::uint64_t size_bytes() const { return end - begin; }
  std::string_view dtype_name() const { return other_dtype.empty() ? name_of(dtype) : other_dtype; }
};

/// A tensor in a mapped file. The bytes are little-endian, row-major and need not be aligned to
/// their element size: the format allows it, so read elements with memcpy. Valid as long as the
/// SafetensorsFile (its mapping) lives.
struct TensorView {
  DType dtype;
  std::span<const std::int64_t> shape;
  std::span<const std::byte> bytes;
  const GgufBlock* block = nullptr;  ///< as TensorInfo's
};

/// A safetensors file: 8 bytes header length (little-endian), a JSON header, the data.
///
/// The header is read, not mapped, and checked completely before anything is allocated for a
/// tensor: length (at most 100,000,000 bytes and inside the file), starts with '{', UTF-8, no deep
/// nesting, at most 64 dims, shape x dtype = size without overflow, data without gap or overlap
/// that ends where the file ends, __metadata__ from string to string (of equal keys the last
/// counts). Zero-size tensors and scalars are legal. Every violation is Error(model) that names
/// file, tensor, rule and value. A tensor of another dtype than DType has, or whose name is there
/// twice, gets a fault instead: the model may not need it.
class SafetensorsFile {
 public:
  /// Reads and checks the header; no data is touched.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }

  /// Ordered by data offset.
  std::span<const TensorInfo> tensors() const { return tensors_; }

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Maps the data, once; throws when the file changed since the header was read.
  void map();

  /// `tensor` is one of tensors(); map() was called before.
  TensorView view(const TensorInfo& tensor) const;

  /// nullopt: no such tensor. map() was called before.
  std::optional<TensorView> view(std::string_view name) const;

  const TensorInfo* find(std::string_view name) const;

  /// Releases the physical pages of a tensor (MappedFile::drop).
  void drop(const TensorInfo& tensor) const;

 private:
  File file_;
  std::uint64_t data_offset_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
  std::optional<MappedFile> mapping_;
};

/// The JSON header of a safetensors file.
struct TensorHeader {
  std::vector<TensorInfo> tensors;  ///< ordered by data offset
  std::map<std::string, std::string> metadata;
};

/// Parses a header and checks every rule of the format except unique names, which get no fault here
/// (the caller sorts by name anyway). `data_bytes` is the size of the file minus length field and
/// header. Throws Error(model) "path: tensor: rule: value".
TensorHeader parse_tensor_header(std::string_view text, std::uint64_t data_bytes,
                                 const std::filesystem::path& path);

}  // namespace hyb
