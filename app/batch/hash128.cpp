#include "app/batch/hash128.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace hyb::app {
namespace {

Hash128 from(const XXH128_hash_t& hash) { return {.high = hash.high64, .low = hash.low64}; }

struct Release {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

struct Hasher::Running {
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

}  // namespace hyb::app
