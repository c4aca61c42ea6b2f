#include <doctest/doctest.h>

#include <random>

#include "core/base/log.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/models/reuse_world.h"
#include "tests/support/level.h"

namespace out_of_memory_test {

using namespace hyb;
using namespace hyb::models::testing;
using emulator::ledger;

namespace {

/// Each shortage is worth a warning.
struct Quiet {
  Quiet() { log::set_level(log::Level::error); }
  ~Quiet() { log::set_level(log::Level::info); }
};

/// No later request for memory is refused.
struct Refusals {
  Refusals(std::int64_t n, std::int64_t count) { ledger().refuse(n, count); }
  ~Refusals() { ledger().refuse(0); }
};

struct Outcome {
  std::vector<Answer> answers;
  std::string error;  ///< empty: there are answers
};

Outcome outcome_of(ReuseFolder& folder, const Setting& setting,
                   const std::vector<Request>& requests) {
  try {
    const auto life = folder.live(setting);
    std::vector<Answer> answers = answers_of(*life, requests, setting.sequences);
    CHECK(life->witness.differences == 0);
    return {std::move(answers), {}};
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::memory);
    return {{}, error.what()};
  }
}

/// The emulator is slow.
std::vector<Request> few(ReuseFolder& folder) {
  std::vector<Request> requests = folder.requests();
  requests.resize(2);
  for (Request& request : requests) request.max_tokens = 5;
  return requests;
}

std::vector<Setting> settings() {
  return {{.memory = "remap", .remembers = true, .sequences = 4, .chunk = 16},
          {.memory = "small", .remembers = true, .sequences = 4, .chunk = 16},
          {.memory = "flip", .remembers = true, .sequences = 4, .chunk = 16}};
}

}  // namespace

TEST_SUITE("cuda_emulator/out_of_memory") {
  TEST_CASE("whatever request for memory is refused, tokens are the same or the error is clean") {
    const Quiet quiet;
    ReuseFolder folder("granite-dense-rope", kernels::Device::cuda);
    const std::vector<Request> requests = few(folder);
    const std::vector<Answer> expected = answers_of(*folder.live({}), requests, 1);
    const std::size_t held = ledger().device_bytes(),
                      pinned = ledger().bytes(emulator::Holder::pinned);
    std::mt19937 random(3);
    int survived = 0, ended = 0;
    for (const Setting& setting : settings()) {
      CAPTURE(setting.memory);
      const std::int64_t before = ledger().requests();
      CHECK(outcome_of(folder, setting, requests).answers == expected);
      const auto all = static_cast<int>(ledger().requests() - before);
      const int tries = hyb::testing::is_full_level() ? all : 3;
      for (int i = 0; i < tries; ++i) {
        const int n = hyb::testing::is_full_level() ? i + 1 : 1 + static_cast<int>(random() % all);
        const std::int64_t count = i % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 40);
        CAPTURE(n);
        CAPTURE(count);
        const Refusals refusals(n, count);
        const Outcome outcome = outcome_of(folder, setting, requests);
        if (outcome.error.empty()) {
          CHECK(outcome.answers == expected);
          ++survived;
        } else {
          CHECK(outcome.error.find(" bytes") != std::string::npos);
          ++ended;
        }
        CHECK(ledger().device_bytes() == held);
        CHECK(ledger().bytes(emulator::Holder::pinned) == pinned);
        CHECK(emulator::fault_text() == "");
      }
    }
    MESSAGE("survived " << survived << ", ended with an error " << ended);
    CHECK(survived > 0);
  }

  TEST_CASE("a card that holds less than the pools were promised serves all, with smaller pools") {
    const Quiet quiet;
    ReuseFolder folder("granite-dense-rope", kernels::Device::cuda);
    const std::vector<Request> requests = few(folder);
    const std::vector<Answer> expected = answers_of(*folder.live({}), requests, 1);
    const Setting setting = settings().front();
    const std::size_t usual_max = ledger().bytes_max;
    for (const std::size_t superblocks : {12, 4}) {
      CAPTURE(superblocks);
      const auto life = folder.live(setting);
      const std::size_t each = life->engine.pool().layout().superblock_bytes;
      ledger().bytes_max = ledger().device_bytes() + superblocks * each;
      CHECK(answers_of(*life, requests, setting.sequences) == expected);
      CHECK(ledger().bytes(emulator::Holder::handle) <= superblocks * each);
      ledger().bytes_max = usual_max;
    }
  }

  TEST_CASE("a model that does not load leaks nothing") {
    const std::size_t held = ledger().device_bytes();
    const std::size_t pinned = ledger().bytes(emulator::Holder::pinned);
    kernels::Queue queue(kernels::Device::cuda, {.threads = 1, .isa = {}});
    const auto load = [&](const models::LoadCalls& calls) {
      TensorFiles files(golden_folder / "granite-moe-nope");
      return load_model(queue, models::Config::from_folder(golden_folder / "granite-moe-nope"),
                        files, {.load = {.activation = DType::bf16}}, calls);
    };
    const std::int64_t before = ledger().requests();
    load({});
    const std::int64_t all = ledger().requests() - before;
    for (std::int64_t n = 1; n <= all; n += 3) {
      CAPTURE(n);
      CAPTURE(all);
      const Refusals refusals(n, 1);
      CHECK_THROWS_AS(load({}), Error);
      CHECK(ledger().device_bytes() == held);
      CHECK(ledger().bytes(emulator::Holder::pinned) == pinned);
      int asked = 0;
      ledger().refuse(n);
      load({.make_room = [&] { return ++asked == 1; }});
      CHECK(asked == 1);
    }
    CHECK(ledger().device_bytes() == held);
  }
}

}  // namespace out_of_memory_test
