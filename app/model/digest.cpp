#include "app/model/digest.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "core/io/tensor_files.h"

namespace hyb::app {
namespace {

Hash128 from(const XXH128_hash_t& hash) { return {.high = hash.high64, .low = hash.low64}; }

}  // namespace

struct Hasher::Running {
  struct Release {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Release> xxh3{XXH3_createState()};
};

Hash128 hash_of(std::string_view bytes) { return from(XXH3_128bits(bytes.data(), bytes.size())); }

std::string hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

Hasher::Hasher() : running_(std::make_unique<Running>()) {
  if (!running_->xxh3) throw std::bad_alloc();
  XXH3_128bits_reset(running_->xxh3.get());
}

Hasher::~Hasher() = default;

void Hasher::add(std::string_view bytes) {
  XXH3_128bits_update(running_->xxh3.get(), bytes.data(), bytes.size());
}

void Hasher::add_part(std::string_view bytes) {
  add(std::to_string(bytes.size()) + ":");
  add(bytes);
}

Hash128 Hasher::value() const { return from(XXH3_128bits_digest(running_->xxh3.get())); }

namespace {

constexpr std::size_t sample_bytes = 4096;

void add_tensor(const TensorFiles& files, std::string_view name, Hasher& hasher) {
  const TensorInfo& info = *files.find(name);
  hasher.add_part(name);
  hasher.add_part(name_of(info.dtype));
  for (const std::int64_t size : info.shape) hasher.add_part(std::to_string(size));
  if (!info.fault.empty()) return;  // the model does not need it, or it would not be run
  const TensorView view = files.view(name);
  // From the middle: the ends of an embedding are often padding.
  const std::size_t count = std::min(sample_bytes, view.bytes.size());
  const auto sample = view.bytes.subspan((view.bytes.size() - count) / 2, count);
  hasher.add_part({reinterpret_cast<const char*>(sample.data()), sample.size()});
}

}  // namespace

Hash128 model_identity(const ModelSource& source, bool with_tensors) {
  Hasher hasher;
  for (const std::string& file : {std::string("config.json"), std::string("generation_config.json"),
                                  source.tokenizer_file(), std::string("tokenizer_config.json")}) {
    hasher.add_part(file);
    hasher.add_part(source.read(file).value_or(""));
  }
  if (const GgufFiles* const gguf = source.gguf())
    hasher.add_part(std::to_string(gguf->header_checksum()));
  const auto chat_template = source.chat_template();
  hasher.add_part(chat_template ? chat_template->text : "");
  if (const auto tools = source.tool_template()) hasher.add_part(tools->text);
  if (!with_tensors || !source.has_tensors()) return hasher.value();
  TensorFiles files = source.tensors();
  files.map();
  std::vector<std::string_view> names = files.names();
  std::sort(names.begin(), names.end());
  for (const std::string_view name : names) add_tensor(files, name, hasher);
  return hasher.value();
}

Hash128 tokenizer_identity(const ModelSource& source) {
  if (const GgufFiles* const gguf = source.gguf())
    return hash_of(std::to_string(gguf->header_checksum()));
  return hash_of(source.read(source.tokenizer_file()).value_or(""));
}

}  // namespace hyb::app
