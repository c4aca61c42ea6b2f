#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "app/model/model_source.h"

namespace hyb::app {

/// XXH3, 128 bits: distinguishes files and ids; no protection against an adversary.
struct Hash128 {
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash_of(std::string_view bytes);

/// 32 hexadecimal digits.
std::string hex(const Hash128& hash);

/// The hash of what is added piece by piece.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::string_view bytes);
  /// Adds the length first: a list of parts hashes differently from its concatenation.
  void add_part(std::string_view bytes);
  Hash128 value() const;

 private:
  struct Running;
  std::unique_ptr<Running> running_;
};

/// Hashes what decides a model's answers: the texts of config, tokenizer, chat template and
/// generation defaults, the name, dtype and shape of every tensor, and some bytes of each tensor
/// that can be read. Reads a few KiB per tensor.
Hash128 model_identity(const ModelSource& source, bool with_tensors);

/// The same for two models: ids of the one are those of the other. Of a GGUF file it is of all of
/// the header, which holds the tokenizer.
Hash128 tokenizer_identity(const ModelSource& source);

}  // namespace hyb::app
