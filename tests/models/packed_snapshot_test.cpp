#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "models/memory_layout.h"
#include "tests/models/loaded.h"

namespace packed_snapshot_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;
using kernels::MapMode;

namespace {

constexpr std::int32_t tokens_max = 160;
constexpr std::int32_t known_tokens = 53;  ///< of the prompts, from a snapshot
const char* const names[] = {"granite-dense-rope",
                             "granite-mamba-only",
                             "granite-moe-nope",
                             "granite-groups",
                             "lfm2-dense",
                             "nemotron-dense",
                             "qwen3_5-dense",
                             "lfm3",
                             "jamba",
                             "kimi-linear",
                             "bailing-lightning",
                             "minimax"};

/// What an answer is made of: tokens, the bits of their log-probabilities, and what was reused.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::uint32_t> logprobs;
  std::int32_t reused = 0;
  bool from_packed = false;
  bool operator==(const Answer&) const = default;
};

class Answers : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId request, std::int32_t, const Completion& completion) override {
    Answer& answer = heard[request];
    answer.tokens = completion.tokens;
    answer.reused = completion.usage.reused_tokens;
    answer.from_packed = completion.usage.resumed_packed;
    for (const TokenEvent& event : completion.events) {
      answer.logprobs.push_back(std::bit_cast<std::uint32_t>(event.logprob));
    }
  }
  std::map<RequestId, Answer> heard;
};

struct World {
  World(const std::string& name, int threads, std::optional<DType> state = {})
      : queue(kernels::Device::cpu, {.threads = threads, .isa = {}}), model([&] {
          TensorFiles files(golden_folder / name);
          return load_model(queue, Config::from_folder(golden_folder / name), files,
                            {.load = {.activation = DType::bf16}, .state = state});
        }()) {}

  ModelRunner runner(MapMode mode) {
    const Geometry& geometry = model.geometry;
    const std::size_t sequence =
        geometry.slot_bytes + geometry.page_bytes * (tokens_max / page_tokens_default + 1);
    layout = memory_layout_of(geometry, {.pool_bytes = 40 * sequence, .packed = true, .flat = {}});
    return {queue,
            model.plan,
            model.weights,
            geometry,
            {.memory = layout,
             .step_tokens = 128,
             .sequences_max = 16,
             .positions_max = tokens_max,
             .vocab_used = model.plan.vocab,
             .mapping = {.mode = mode}}};
  }

  std::vector<TokenId> tokens(std::int32_t count, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<TokenId> drawn;
    for (std::int32_t i = 0; i < count; ++i) {
      drawn.push_back(
          TokenId{static_cast<std::int32_t>(random() % static_cast<unsigned>(model.plan.vocab))});
    }
    return drawn;
  }

  /// Begins with what all know, and goes on with tokens of its own.
  Request request(std::int32_t own = 17) const {
    Request request;
    request.prompt = tokens(known_tokens, 1);
    const std::vector<TokenId> more = tokens(own, 2);
    request.prompt.insert(request.prompt.end(), more.begin(), more.end());
    request.max_tokens = 12;
    request.sampling.logprobs = 0;
    return request;
  }

  /// Something else to do, of another length each.
  Request company(unsigned seed) const {
    Request request;
    request.prompt = tokens(static_cast<std::int32_t>(20 + 7 * seed), 100 + seed);
    request.max_tokens = 15;
    request.sampling = {{.temperature = 1.0F, .seed = seed}};
    return request;
  }

  kernels::Queue queue;
  Model model;
  ModelMemoryLayout layout;
};

/// What surrounds a request.
struct Setting {
  MapMode mode = MapMode::remap;
  int threads = 2;
  std::int32_t chunk = 64;
  unsigned before = 0;   ///< requests that run between snapshot and request
  unsigned company = 0;  ///< that run at the same time
  unsigned copies = 1;   ///< of the request, all at once
};

void run(Engine& engine) {
  while (!engine.idle()) engine.step();
}

/// Answers of all copies of a request that goes on from one int8 snapshot.
std::vector<Answer> answers(const std::string& name, const Setting& setting) {
  World world(name, setting.threads);
  ModelRunner runner = world.runner(setting.mode);
  Engine engine(runner, nullptr,
                {.length_max = tokens_max,
                 .sequences_max = 8,
                 .chunk_tokens = setting.chunk,
                 .prefixes = {.precision = Precision::int8},
                 .audit = true});
  Answers sink;
  Request first;
  first.prompt = world.tokens(known_tokens, 1);
  first.prefill_only = true;
  engine.submit(first, sink);
  run(engine);
  for (unsigned i = 0; i < setting.before; ++i) engine.submit(world.company(i), sink);
  run(engine);
  for (unsigned i = 0; i < setting.company; ++i) {
    engine.submit(world.company(8 + i), sink);
    engine.step();
  }
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < setting.copies; ++i) {
    Request request = world.request();
    request.keep_snapshots = setting.copies == 1;  // or later copies go on from the first's end
    ids.push_back(engine.submit(request, sink));
  }
  run(engine);
  std::vector<Answer> all;
  for (const RequestId id : ids) all.push_back(sink.heard.at(id));
  return all;
}

float state_value(const std::byte* state, DType type, std::int64_t i) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, state + 4 * i, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, state + 2 * i, 2);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rows of a state whose error is not within half a step; a step is the row's largest / 127,
/// rounded up to 8 bits. Sets `moved` when an element is not the same.
int rows_off(const SlotPiece& piece, DType type, const std::byte* exact, const std::byte* back,
             bool& moved) {
  int off = 0;
  for (std::int64_t row = 0; row < std::int64_t{piece.heads} * piece.rows; ++row) {
    double largest = 0, error = 0;
    for (std::int64_t i = row * piece.columns; i < (row + 1) * piece.columns; ++i) {
      const double x = state_value(exact + piece.state_offset, type, i);
      const double y = state_value(back + piece.state_offset, type, i);
      largest = std::max(largest, std::abs(x));
      error = std::max(error, std::abs(x - y));
    }
    const double rounding = type == DType::bf16 ? largest * 0x1p-8 : 0;
    off += error > largest / 254 * (1 + 0x1p-7) + rounding;
    moved = moved || error > 0;
  }
  return off;
}

}  // namespace

TEST_SUITE("models/packed_snapshot") {
  TEST_CASE("an answer from an int8 snapshot depends on the snapshot alone") {
    for (const std::string name : names) {
      CAPTURE(name);
      const std::vector<Answer> expected = answers(name, {});
      REQUIRE(expected.size() == 1);
      CHECK(expected[0].reused == known_tokens);
      CHECK(expected[0].from_packed);
      CHECK(expected[0].tokens.size() == 12);
      for (const Setting& setting :
           {Setting{.mode = MapMode::flip}, Setting{.threads = 1}, Setting{.chunk = 5},
            Setting{.before = 6}, Setting{.company = 4}, Setting{.copies = 5},
            Setting{.mode = MapMode::flip, .chunk = 7, .before = 3, .company = 2, .copies = 3}}) {
        CAPTURE(setting.chunk);
        CAPTURE(setting.before);
        CAPTURE(setting.company);
        CAPTURE(setting.copies);
        for (const Answer& answer : answers(name, setting)) CHECK(answer == expected[0]);
      }
    }
  }

  TEST_CASE("a sequence that leaves int8 snapshots answers from exact states") {
    for (const std::string name : names) {
      CAPTURE(name);
      std::vector<Answer> found;
      for (const Precision precision : {Precision::exact, Precision::int8}) {
        World world(name, 2);
        ModelRunner runner = world.runner(MapMode::remap);
        Engine engine(runner, nullptr,
                      {.length_max = tokens_max,
                       .chunk_tokens = 16,
                       .prefixes = {.precision = precision},
                       .audit = true});
        Answers sink;
        Request request = world.request();
        request.message_ends = {9, 30, known_tokens};
        const RequestId id = engine.submit(request, sink);
        run(engine);
        CHECK(engine.usage().snapshots >= 3);
        CHECK((engine.usage().pool.packed.units >= 3) == (precision == Precision::int8));
        found.push_back(sink.heard.at(id));
      }
      CHECK(found[0] == found[1]);
    }
  }

  TEST_CASE("a state comes back from its snapshot within half a step per row, its window exactly") {
    for (const std::string name : names) {
      for (const DType type : {DType::f32, DType::bf16}) {
        CAPTURE(name);
        World world(name, 2, type);
        ModelRunner runner = world.runner(MapMode::remap);
        MemoryPool pool(runner.capacity().memory);
        const Geometry& geometry = world.model.geometry;
        const std::vector<TokenId> tokens = world.tokens(71, 4);
        Memory memory = *pool.start();
        REQUIRE(memory.reserve(71));
        runner.run({.orders = pool.take_orders(),
                    .spans = {{.tokens = tokens,
                               .position = 0,
                               .tables = memory.tables(),
                               .read_slot = memory.read_slot(),
                               .write_slot = memory.write_slot(),
                               .samples = {}}}});
        memory.keep(71);
        const Checkpoint packed = *memory.checkpoint(Precision::int8);
        const Memory resumed = *pool.resume(packed);
        runner.run({.orders = pool.take_orders(), .spans = {}});

        const ViewId view = runner.capacity().memory.slot_view();
        std::vector<std::byte> exact(runner.capacity().memory.unit_bytes(view)), back = exact;
        runner.read(view, index(memory.read_slot()), exact);
        runner.read(view, index(resumed.read_slot()), back);
        bool moved = false;
        for (const SlotPiece& piece : geometry.pieces) {
          CHECK(std::memcmp(exact.data() + piece.conv_offset, back.data() + piece.conv_offset,
                            piece.conv_bytes) == 0);
          CHECK(rows_off(piece, type, exact.data(), back.data(), moved) == 0);
        }
        const bool has_states = geometry.pieces.front().state_bytes != 0;
        CHECK(moved == has_states);  // or nothing was packed
      }
    }
  }

  TEST_CASE("a published snapshot is never written again") {
    World world("granite-groups", 2);
    ModelRunner runner = world.runner(MapMode::remap);
    Engine engine(runner, nullptr,
                  {.length_max = tokens_max,
                   .chunk_tokens = 32,
                   .prefixes = {.precision = Precision::int8},
                   .audit = true});
    Answers sink;
    Request request = world.request();
    request.message_ends = {known_tokens};
    const auto bytes = [&] {
      engine.carry_out_orders();
      const Lookup found = engine.prefixes().look_up(
          std::span<const TokenId>(request.prompt).first(known_tokens + 1));
      REQUIRE(found.resumable == known_tokens);
      const ViewId view = engine.pool().layout().packed_view();
      std::vector<std::byte> all(engine.pool().layout().unit_bytes(view));
      runner.read(view, index(found.snapshot->checkpoint.packed()), all);
      return all;
    };
    engine.submit(request, sink);
    while (engine.usage().snapshots == 0) engine.step();
    const std::vector<std::byte> published = bytes();
    run(engine);
    CHECK(bytes() == published);
    for (unsigned i = 0; i < 8; ++i) engine.submit(i % 2 == 0 ? request : world.company(i), sink);
    run(engine);
    CHECK(bytes() == published);
  }
}

}  // namespace packed_snapshot_test
