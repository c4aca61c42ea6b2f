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

#include "core/io/file.h"
#include "core/io/gguf_metadata.h"
#include "core/io/mapped_file.h"

namespace hyb {

/// Says how tensors of GGUF files are stored; the numbers are the format's. Their layouts are
/// models' concern: here a type is a name and the size of its blocks.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

/// Consecutive elements of a row are stored as one block.
struct GgufBlock {
  GgufType type;
  std::string_view name;  ///< as llama.cpp writes it: "Q4_K"
  std::uint32_t elements;
  std::uint32_t bytes;
};

/// nullptr: the format has no such type, or has it no more.
const GgufBlock* gguf_block(std::uint32_t type);

/// One tensor as the file states it.
struct GgufTensor {
  std::string name;
  std::uint32_t type;  ///< a GgufType, unless there is a fault
  /// Row-major, outermost first, as safetensors has it: GGUF lists dimensions the other way round.
  std::vector<std::int64_t> shape;
  std::uint64_t begin;     ///< first byte, from the start of the data
  std::uint64_t bytes;     ///< 0 with a fault
  std::string fault = {};  ///< why it can't be used: "its type 31 is not read"; "" for most

  std::int64_t elements() const;
};

/// The header of one GGUF file. Views of its metadata point into the text that was parsed.
struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  ///< ordered by their data
  std::uint64_t data_offset = 0;    ///< of the tensors' data in the file
};

/// Parses the front of a file of `file_bytes` bytes, and checks every rule of the format before
/// anything is allocated by a count that the file states:
///
/// versions 2 and 3, little-endian; at most 65,536 keys and 1,000,000 tensors; keys of 1 to 65,535
/// bytes and names of 1 to 255, each there once; texts and lists (of one level) inside the file;
/// general.alignment a power of two from 8 to 1 MiB; at most four dimensions, each 1 or more, whole
/// blocks in a row, sizes without overflow; data aligned, inside the file, without overlap. A
/// tensor of a type that is not read gets a fault instead: the model may not need it.
///
/// nullopt: the header goes on after `front`, which is not the whole file. Throws Error(model)
/// "path: rule: value".
std::optional<GgufHeader> parse_gguf_header(std::string_view front, std::uint64_t file_bytes,
                                            const std::filesystem::path& path);

/// Most bytes before the data: the vocabulary is the largest part, about 16 MB of 256k tokens.
inline constexpr std::size_t gguf_header_max = std::size_t{256} << 20;

/// The name of a part of a split file: PREFIX-00001-of-00003.gguf.
struct GgufSplitName {
  std::string prefix;
  std::uint64_t number, count;  ///< from 1

  std::string of(std::uint64_t part) const;
};

/// nullopt: the name has another form, or numbers that no part has.
std::optional<GgufSplitName> gguf_split_name(const std::string& name);

/// A model's GGUF file, or all parts of one that is split: PREFIX-00001-of-00003.gguf and so on, of
/// which any may be named. Opening reads headers only.
///
/// Throws Error(model): as parse_gguf_header() for each part; a part that is missing, has another
/// number than its name says, or has a tensor that another part has, too; parts that have fewer
/// tensors than the first one says.
class GgufFiles {
 public:
  explicit GgufFiles(const std::filesystem::path& path);

  /// Returns those of the first part, which has all that the model needs to know.
  const GgufMetadata& metadata() const;

  /// Part by part, ordered by their data.
  std::vector<const GgufTensor*> tensors() const;

  /// nullptr: there is none of that name.
  const GgufTensor* find(std::string_view name) const;

  /// The part that holds an existing tensor.
  const std::filesystem::path& path_of(std::string_view name) const;

  /// Reads the bytes of an existing tensor without a fault, mapped or not.
  std::vector<std::byte> read(std::string_view name) const;

  /// Maps the data of all parts. Call it once, before view(). Throws where a file changed since its
  /// header was read.
  void map();

  /// The bytes of an existing tensor without a fault, which need not be aligned to anything. Valid
  /// as long as this lives.
  std::span<const std::byte> view(std::string_view name) const;

  /// Releases the physical pages of an existing tensor (MappedFile::drop).
  void drop(std::string_view name) const;

  std::uint64_t bytes() const;                       ///< of all tensors
  std::vector<std::filesystem::path> paths() const;  ///< of all parts
  /// A checksum of the headers of all parts: it differs where anything but the data does.
  std::uint64_t header_checksum() const;

 private:
  struct Part {
    explicit Part(const std::filesystem::path& path);

    File file;
    std::vector<char> front;  ///< the header, which metadata are views of
    GgufHeader header;
    std::optional<MappedFile> mapping = {};
  };
  struct Place {
    std::uint32_t part, tensor;
  };

  void open_part(const std::filesystem::path& path, std::uint64_t number, std::uint64_t count);
  const Place& place(std::string_view name) const;

  std::vector<Part> parts_;
  std::map<std::string_view, Place> places_;  ///< keys point into the tensors
};

}  // namespace hyb
