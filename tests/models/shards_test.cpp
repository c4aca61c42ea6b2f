#include "models/shards.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "models/store.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

/// What belongs where is said here once more, by the contracts of ops, not by the descriptors that
/// the runs are made from.
namespace shards_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;
using kernels::Tensor;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte untouched{0xee};
constexpr std::int32_t drafts = 3;

/// A number that only its coordinates decide.
std::uint64_t number_at(std::initializer_list<std::int64_t> place) {
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (const std::int64_t value : place) {
    state ^= static_cast<std::uint64_t>(value);
    state *= 0xbf58476d1ce4e5b9;
    state ^= state >> 29;
  }
  return state;
}

/// The first of the model's groups that a rank has, and how many.
std::pair<std::int64_t, std::int64_t> groups_of(std::int64_t groups, std::int64_t rank,
                                                std::int64_t ranks) {
  if (groups >= ranks) return {rank * (groups / ranks), groups / ranks};
  return {rank / (ranks / groups), 1};
}

void append(std::vector<std::int64_t>& list, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) list.push_back(first + i);
}

/// Of a rank's inputs to a recurrence, in the order that its ops take them, the place of each among
/// those of the whole model.
struct Inputs {
  std::vector<std::int64_t> channels, others;
};

Inputs inputs_of(const Ssd& part, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t heads = part.heads / ranks, n = part.state_dim, x = part.inner();
  const auto [group, groups] = groups_of(part.shape.groups, rank, ranks);
  Inputs inputs;
  append(inputs.channels, rank * heads * part.head_dim, heads * part.head_dim);
  append(inputs.channels, x + group * n, groups * n);
  append(inputs.channels, x + part.shape.groups * n + group * n, groups * n);
  append(inputs.others, rank * heads, heads);
  return inputs;
}

Inputs inputs_of(const DeltaNet& part, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t heads = part.value_heads / ranks, keys = part.keys();
  const auto [group, groups] = groups_of(part.shape.key_heads, rank, ranks);
  Inputs inputs;
  append(inputs.channels, group * part.key_dim, groups * part.key_dim);
  append(inputs.channels, keys + group * part.key_dim, groups * part.key_dim);
  append(inputs.channels, 2 * keys + rank * heads * part.value_dim, heads * part.value_dim);
  append(inputs.others, rank * heads, heads);
  append(inputs.others, part.value_heads + rank * heads, heads);
  return inputs;
}

Inputs inputs_of(const ShortConv& part, std::int64_t rank, std::int64_t ranks) {
  Inputs inputs;
  append(inputs.channels, rank * (part.channels / ranks), part.channels / ranks);
  return inputs;
}

const Part& part_at(const Plan& plan, std::int32_t layer, std::int32_t block, std::int32_t part) {
  const auto layers = static_cast<std::int32_t>(plan.layers.size());
  const Layer& of = layer < layers
                        ? plan.layers[static_cast<std::size_t>(layer)]
                        : plan.draft->layers.at(static_cast<std::size_t>(layer - layers));
  return of.blocks.at(static_cast<std::size_t>(block)).parts.at(static_cast<std::size_t>(part));
}

/// What comes after the layers of a plan with drafts, and is whole on every rank.
bool is_of_drafts(const Plan& plan, std::int32_t layer) {
  return plan.draft && layer == std::ssize(plan.layers) + std::ssize(plan.draft->layers);
}

Inputs inputs_at(const Plan& plan, const SlotPiece& piece, std::int64_t rank, std::int64_t ranks) {
  Inputs inputs;
  if (is_of_drafts(plan, piece.layer)) {
    append(inputs.channels, 0, plan.width);
    return inputs;
  }
  std::visit(
      [&](const auto& part) {
        if constexpr (requires { inputs_of(part, rank, ranks); }) {
          inputs = inputs_of(part, rank, ranks);
        }
      },
      part_at(plan, piece.layer, piece.block, piece.part));
  REQUIRE(!inputs.channels.empty());
  return inputs;
}

/// A state's numbers stay small, so that they can be packed.
void put_state(const Tensor& state, std::int64_t at, std::uint64_t number) {
  const float value = static_cast<float>(number % 4001) / 1000.0F - 2.0F;
  const std::size_t bytes = size_of(state.dtype);  // bf16: the upper half
  std::memcpy(static_cast<std::byte*>(state.data) + static_cast<std::size_t>(at) * bytes,
              reinterpret_cast<const std::byte*>(&value) + sizeof value - bytes, bytes);
}

void put_bytes(const Tensor& tensor, std::int64_t at, std::int64_t bytes, std::uint64_t number) {
  auto* const to = static_cast<std::byte*>(tensor.data) + at * bytes;
  for (std::int64_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(number >> (8 * i));
}

/// The stores of ranks that run a model together, two units of every view in each.
class Ranks {
 public:
  Ranks(const Plan& plan, GeometryOptions options, std::int32_t ranks)
      : plan_(plan), queue_(kernels::Device::cpu, {.threads = 1, .isa = {}}) {
    options.ranks = ranks;
    geometry_ = geometry_of(plan, options);
    memory_ = memory_layout_of(
        geometry_,
        {.pool_bytes = 16U << 20, .packed = true, .ring_tokens = drafts, .flat = std::nullopt});
    REQUIRE(memory_.layout.superblocks >= 2 * memory_.layout.views());
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      stores_.push_back(std::make_unique<Store>(queue_, geometry_, memory_));
      for (std::int32_t view = 0; view < memory_.layout.views(); ++view) {
        if (!has(ViewId{view})) continue;
        for (std::int32_t half = 0; half < 2; ++half) {
          order(rank, ChangeOwner{SuperblockId{2 * view + half}, no_view, ViewId{view}});
          write(rank, ViewId{view}, half,
                Bytes(memory_.layout.unit_bytes(ViewId{view}), untouched));
        }
      }
    }
  }

  std::int32_t count() const { return geometry_.ranks; }
  std::int32_t views() const { return memory_.layout.views(); }
  bool has(ViewId view) const { return memory_.layout.units_per_superblock(view) > 0; }
  const Geometry& geometry() const { return geometry_; }
  ShardSide side() const { return {geometry_, memory_}; }

  Bytes read(std::int32_t rank, ViewId view, std::int32_t half) const {
    Bytes bytes(memory_.layout.unit_bytes(view));
    store(rank).read(view, unit(view, half), bytes);
    return bytes;
  }
  void write(std::int32_t rank, ViewId view, std::int32_t half, const Bytes& bytes) {
    store(rank).write(view, unit(view, half), bytes);
  }

  /// What a rank has of the model's memory, in one half.
  void fill(std::int32_t rank, std::int32_t half) {
    for (std::size_t i = 0; i < geometry_.pages.size(); ++i) fill_page(rank, half, i);
    for (std::size_t i = 0; i < geometry_.pieces.size(); ++i) fill_piece(rank, half, i);
    if (geometry_.pieces.empty()) return;
    const MemoryLayout& layout = memory_.layout;
    order(rank, PackSlot{SlotId{unit(layout.slot_view(), half)},
                         PackedId{unit(layout.packed_view(), half)}});
  }

  /// Bytes of a rank's unit without gaps and padding.
  std::size_t used_bytes(ViewId view) const {
    const MemoryLayout& layout = memory_.layout;
    if (view == layout.slot_view()) return geometry_.state_bytes_per_sequence;
    if (index(view) < index(layout.slot_view())) return layout.unit_bytes(view);
    std::size_t bytes = 0;
    for (const SlotPiece& piece : geometry_.pieces) {
      const auto rows = static_cast<std::size_t>(piece.heads * piece.rows);
      bytes += view == layout.ring_view()
                   ? static_cast<std::size_t>(drafts * piece.ring_width) *
                         size_of(geometry_.load.activation)
                   : piece.conv_bytes + rows * (2 + static_cast<std::size_t>(piece.columns));
    }
    return bytes;
  }

 private:
  Store& store(std::int32_t rank) const { return *stores_[static_cast<std::size_t>(rank)]; }
  void order(std::int32_t rank, const Order& order) { store(rank).carry_out(std::vector{order}); }
  std::int32_t unit(ViewId view, std::int32_t half) const {
    return (2 * index(view) + half) * memory_.layout.units_per_superblock(view);
  }

  void fill_page(std::int32_t rank, std::int32_t half, std::size_t ordinal) {
    const PageLayout& page = geometry_.pages[ordinal];
    const Store& memory = store(rank);
    const ViewId view{static_cast<std::int32_t>(memory.group(ordinal))};
    const Tensor row = memory.arena(ordinal).rows(unit(view, half), 1);
    std::int64_t first = 0, heads = 1;
    if (!is_of_drafts(plan_, page.layer)) {
      const auto& part = std::get<Attention>(part_at(plan_, page.layer, page.block, page.part));
      std::tie(first, heads) = groups_of(part.kv_heads, rank, count());
    }
    const auto bytes = static_cast<std::int64_t>(page.page_bytes) / heads;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < bytes; ++i) {
        const std::int64_t at = head * bytes + i;
        put_bytes(row, at, 1, number_at({1, static_cast<std::int64_t>(ordinal), first + head, i}));
      }
    }
  }

  void fill_piece(std::int32_t rank, std::int32_t half, std::size_t ordinal) {
    const SlotPiece& piece = geometry_.pieces[ordinal];
    const Store& memory = store(rank);
    const MemoryLayout& layout = memory_.layout;
    const auto layer = static_cast<std::int64_t>(ordinal);
    const auto bytes = static_cast<std::int64_t>(size_of(geometry_.load.activation));
    Inputs inputs = inputs_at(plan_, piece, rank, count());
    const auto slot = unit(layout.slot_view(), half);
    const Tensor window = memory.windows(ordinal).rows(slot, 1);
    const std::int64_t taps = piece.conv_width - 1;
    REQUIRE(window.dim(1) == std::ssize(inputs.channels));
    for (std::int64_t c = 0; c < window.dim(1); ++c) {
      const std::int64_t channel = inputs.channels[static_cast<std::size_t>(c)];
      for (std::int64_t k = 0; k < taps; ++k) {
        put_bytes(window, c * taps + k, bytes, number_at({2, layer, channel, k}));
      }
    }
    if (piece.heads > 0) fill_state(rank, memory.states(ordinal).rows(slot, 1), layer);
    const Tensor ring = memory.rings(ordinal).rows(unit(layout.ring_view(), half), 1);
    std::vector<std::int64_t> entry = inputs.channels;
    for (const std::int64_t other : inputs.others) entry.push_back(other + (1 << 20));
    REQUIRE(ring.dim(2) == std::ssize(entry));
    for (std::int64_t i = 0; i < drafts * ring.dim(2); ++i) {
      const std::int64_t place = entry[static_cast<std::size_t>(i % ring.dim(2))];
      put_bytes(ring, i, bytes, number_at({4, layer, i / ring.dim(2), place}));
    }
  }

  void fill_state(std::int32_t rank, const Tensor& state, std::int64_t layer) {
    const std::int64_t heads = state.dim(1), size = state.dim(2) * state.dim(3);
    for (std::int64_t i = 0; i < heads * size; ++i) {
      put_state(state, i, number_at({3, layer, rank * heads + i / size, i % size}));
    }
  }

  const Plan& plan_;
  kernels::Queue queue_;
  Geometry geometry_;
  ModelMemoryLayout memory_;
  std::vector<std::unique_ptr<Store>> stores_;
};

/// Moves half `half` of one side to the other. Every byte of a unit that is written is written
/// once, and all that are used are.
void exchange(const Ranks& from, Ranks& to, std::int32_t half, std::int32_t to_half, ViewId view) {
  std::vector<Bytes> sources, targets;
  for (std::int32_t rank = 0; rank < from.count(); ++rank) {
    sources.push_back(from.read(rank, view, half));
  }
  for (std::int32_t rank = 0; rank < to.count(); ++rank) {
    targets.push_back(to.read(rank, view, to_half));
  }
  std::vector<std::vector<int>> writes;
  for (const Bytes& target : targets) writes.emplace_back(target.size(), 0);
  std::size_t sent = 0;
  for (const ShardRun& run : shard_runs(from.side(), to.side(), view)) {
    const Bytes& source = sources.at(static_cast<std::size_t>(run.from_rank));
    Bytes& target = targets.at(static_cast<std::size_t>(run.to_rank));
    REQUIRE(run.bytes > 0);
    REQUIRE(run.from + run.bytes <= source.size());
    REQUIRE(run.to + run.bytes <= target.size());
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(run.from), run.bytes,
                target.begin() + static_cast<std::ptrdiff_t>(run.to));
    for (std::size_t i = 0; i < run.bytes; ++i) {
      ++writes[static_cast<std::size_t>(run.to_rank)][run.to + i];
    }
    sent += run.bytes;
  }
  for (std::int32_t rank = 0; rank < to.count(); ++rank) {
    const std::vector<int>& counts = writes[static_cast<std::size_t>(rank)];
    CHECK(std::accumulate(counts.begin(), counts.end(), std::size_t{0}) == to.used_bytes(view));
    CHECK(*std::max_element(counts.begin(), counts.end()) == 1);
    to.write(rank, view, to_half, targets[static_cast<std::size_t>(rank)]);
  }
  CHECK(sent == to.used_bytes(view) * static_cast<std::size_t>(to.count()));
}

/// There and back, all views.
void check_exchange(const Plan& plan, const GeometryOptions& options, std::int32_t first,
                    std::int32_t second) {
  Ranks from(plan, options, first), to(plan, options, second), back(plan, options, first);
  for (std::int32_t rank = 0; rank < first; ++rank) from.fill(rank, 0);
  for (std::int32_t rank = 0; rank < second; ++rank) to.fill(rank, 1);
  for (std::int32_t v = 0; v < from.views(); ++v) {
    const ViewId view{v};
    CAPTURE(v);
    if (!from.has(view)) continue;
    exchange(from, to, 0, 0, view);
    for (std::int32_t rank = 0; rank < second; ++rank) {
      CAPTURE(rank);
      CHECK(to.read(rank, view, 0) == to.read(rank, view, 1));
    }
    exchange(to, back, 0, 0, view);
    for (std::int32_t rank = 0; rank < first; ++rank) {
      CAPTURE(rank);
      CHECK(back.read(rank, view, 0) == from.read(rank, view, 0));
    }
  }
}

class Drawer {
 public:
  Drawer(std::uint32_t seed, std::int32_t first, std::int32_t second)
      : random_(seed), first_(first), second_(second) {}

  std::int32_t number(std::int32_t least, std::int32_t most) {
    return std::uniform_int_distribution<std::int32_t>(least, most)(random_);
  }

  Plan plan() {
    Plan plan = {
        .family = "test", .vocab = 8, .width = number(1, 40), .norm_eps = 1e-6F, .layers = {}};
    const std::int32_t layers = number(1, 5);
    for (std::int32_t i = 0; i < layers; ++i) {
      Layer& layer = plan.layers.emplace_back();
      const std::int32_t blocks = number(1, 2);
      for (std::int32_t b = 0; b < blocks; ++b) layer.blocks.push_back({.parts = {part()}});
    }
    plan.layers.push_back({.blocks = {{.parts = {attention()}}}});
    if (number(0, 1) == 1) {
      plan.draft = DraftLayer{.layers = {{.blocks = {{.parts = {attention()}}}}}};
    }
    return plan;
  }

  GeometryOptions options() {
    constexpr DType kv[] = {DType::bf16, DType::f32, DType::f8_e4m3};
    const DType activation = number(0, 1) == 0 ? DType::bf16 : DType::f32;
    const DType state = number(0, 1) == 0 ? DType::bf16 : DType::f32;
    return {.load = {.activation = activation},
            .kv = activation == DType::f32 ? DType::f32 : kv[2 * number(0, 1)],
            .state = state,
            .page_tokens = number(0, 1) == 0 ? 16 : 32};
  }

 private:
  /// Groups of heads that either number of ranks can divide or share.
  std::int32_t groups() {
    const auto fits = [](std::int32_t groups, std::int32_t ranks) {
      return groups % ranks == 0 || ranks % groups == 0;
    };
    for (;;) {
      const std::int32_t groups = number(1, 8);
      if (fits(groups, first_) && fits(groups, second_)) return groups;
    }
  }
  std::int32_t heads_of(std::int32_t groups) {
    return std::lcm(std::lcm(groups, first_), second_) * number(1, 2);
  }

  Attention attention() {
    const std::int32_t kv_heads = groups();
    Attention part = {.heads = heads_of(kv_heads),
                      .kv_heads = kv_heads,
                      .head_dim = 2 * number(1, 9),
                      .scale = 1.0F,
                      .rope = std::nullopt,
                      .qk_norm = std::nullopt};
    const std::int32_t reach = number(0, 2);
    if (reach == 1) part.window = 32;
    if (reach == 2) part.chunk = 64;
    return part;
  }

  Part part() {
    const std::int32_t kind = number(0, 4), shared = groups();
    if (kind == 0) return attention();
    if (kind == 1) {
      return ShortConv{.channels = std::lcm(first_, second_) * number(1, 9),
                       .conv_width = number(2, 4)};
    }
    if (kind == 2) {
      return Ssd{.heads = heads_of(shared),
                 .head_dim = number(1, 9),
                 .state_dim = number(1, 17),
                 .shape = {.groups = shared},
                 .conv_width = number(2, 4)};
    }
    if (kind == 3) {
      return DeltaNet{.shape = {.key_heads = shared},
                      .value_heads = heads_of(shared),
                      .key_dim = number(1, 9),
                      .value_dim = number(1, 9),
                      .conv_width = number(2, 4)};
    }
    Attention reader = attention();
    reader.kv_of = 0;
    return reader;
  }

  std::mt19937 random_;
  std::int32_t first_, second_;
};

bool divides(const Plan& plan, std::int32_t ranks) {
  try {
    geometry_of(plan, {.ranks = ranks});
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_SUITE("models/shards") {
  TEST_CASE("every byte of every rank comes from where its head is, there and back") {
    constexpr std::int32_t counts[] = {1, 2, 4, 3};
    std::uint32_t seed = 0;
    for (const std::int32_t first : counts) {
      for (const std::int32_t second : counts) {
        for (int round = 0; round < 6; ++round) {
          CAPTURE(first);
          CAPTURE(second);
          ++seed;
          CAPTURE(seed);
          Drawer drawer(seed, first, second);
          const Plan plan = drawer.plan();
          check_exchange(plan, drawer.options(), first, second);
        }
      }
    }
  }

  TEST_CASE("x, B and C of a window, and the groups that ranks share, by hand") {
    // Four heads of two channels, two groups of three states: x is 0-7, B 8-13, C 14-19.
    Plan plan = {.family = "test", .vocab = 8, .width = 4, .norm_eps = 1e-6F, .layers = {}};
    const Ssd part = {
        .heads = 4, .head_dim = 2, .state_dim = 3, .shape = {.groups = 2}, .conv_width = 2};
    plan.layers = {{.blocks = {{.parts = {part}}}}};
    const Geometry one = geometry_of(plan), four = geometry_of(plan, {.ranks = 4});
    const StoreLayout whole = flat_memory(one, 0, 1), quarter = flat_memory(four, 0, 1);
    CHECK(four.pieces[0].conv_channels == 2 + 3 + 3);
    const std::vector<ShardRun> runs =
        shard_runs({one, whole}, {four, quarter}, whole.layout.slot_view());
    REQUIRE(runs.size() == 16);
    const auto check = [&](std::size_t i, std::size_t from, std::size_t to, std::size_t bytes) {
      CAPTURE(i);
      CHECK(runs[i].from_rank == 0);
      CHECK(runs[i].to_rank == static_cast<std::int32_t>(i / 4));
      CHECK(runs[i].from == from);
      CHECK(runs[i].to == to);
      CHECK(runs[i].bytes == bytes);
    };
    for (std::size_t rank = 0; rank < 4; ++rank) {
      check(4 * rank, 2 * 2 * rank, 0, 2 * 2);
      check(4 * rank + 1, 2 * (8 + 3 * (rank / 2)), 4, 2 * 3);
      check(4 * rank + 2, 2 * (14 + 3 * (rank / 2)), 10, 2 * 3);
      check(4 * rank + 3, 64 + 4 * 6 * rank, 64, 4 * 6);
    }
  }

  TEST_CASE("copies are read from different ranks, and alike sides exchange whole pieces") {
    Plan plan = {.family = "test", .vocab = 8, .width = 4, .norm_eps = 1e-6F, .layers = {}};
    const Attention part = {.heads = 4,
                            .kv_heads = 1,
                            .head_dim = 8,
                            .scale = 1.0F,
                            .rope = std::nullopt,
                            .qk_norm = std::nullopt};
    plan.layers = {{.blocks = {{.parts = {part}}}}, {.blocks = {{.parts = {part}}}}};
    const Geometry two = geometry_of(plan, {.ranks = 2}), four = geometry_of(plan, {.ranks = 4});
    const StoreLayout halves = flat_memory(two, 1, 0), quarters = flat_memory(four, 1, 0);
    const auto sources = [&](const std::vector<ShardRun>& runs) {
      std::vector<std::pair<std::int32_t, std::int32_t>> ranks;
      for (const ShardRun& run : runs) {
        CHECK(run.bytes == two.pages[0].page_bytes);
        ranks.emplace_back(run.from_rank, run.to_rank);
      }
      return ranks;
    };
    using Pairs = std::vector<std::pair<std::int32_t, std::int32_t>>;
    // Two layers, each its own run: arenas of layers are apart.
    CHECK(sources(shard_runs({two, halves}, {four, quarters}, ViewId{0})) ==
          Pairs{{0, 0}, {0, 0}, {0, 1}, {0, 1}, {1, 2}, {1, 2}, {1, 3}, {1, 3}});
    CHECK(sources(shard_runs({four, quarters}, {two, halves}, ViewId{0})) ==
          Pairs{{0, 0}, {0, 0}, {2, 1}, {2, 1}});
    CHECK(sources(shard_runs({two, halves}, {two, halves}, ViewId{0})) ==
          Pairs{{0, 0}, {0, 0}, {1, 1}, {1, 1}});
  }

  TEST_CASE("published models: exactly the bytes of each rank, without padding") {
    const std::pair<std::int32_t, std::int32_t> sides[] = {{1, 2}, {1, 4}, {2, 4}, {4, 2}, {2, 1}};
    std::size_t exchanges = 0;
    for (const char* name :
         {"granite-4.0-h-tiny", "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b",
          "qwen3-next-80b-a3b", "falcon-h1-0.5b", "lfm2-1.2b", "gemma-3n-e2b", "gemma-4-e2b",
          "gpt-oss-20b", "jamba-1.5-mini", "llama-4-scout", "minimax-text-01",
          "kimi-linear-48b-a3b", "olmo-hybrid-7b", "ling-2.6-flash", "ling-3.0-tiny",
          "zamba2-7b"}) {
      CAPTURE(name);
      const Plan plan = plan_of(name);
      for (const auto& [from, to] : sides) {
        if (!divides(plan, from) || !divides(plan, to)) continue;
        ++exchanges;
        const Geometry sender = geometry_of(plan, {.ranks = from});
        const Geometry receiver = geometry_of(plan, {.ranks = to});
        const StoreLayout one = flat_memory(sender, 1, 1), other = flat_memory(receiver, 1, 1);
        const auto sent = [&](ViewId view) {
          std::size_t bytes = 0;
          for (const ShardRun& run : shard_runs({sender, one}, {receiver, other}, view)) {
            bytes += run.bytes;
          }
          return bytes / static_cast<std::size_t>(to);
        };
        CHECK(sent(ViewId{0}) == receiver.page_bytes);
        if (receiver.pieces.empty()) continue;
        CHECK(sent(one.layout.slot_view()) == receiver.state_bytes_per_sequence);
      }
    }
    CHECK(exchanges >= 40);
  }

  // What page unification sends of Nemotron-3-Super with bf16 keys on four ranks: blocks of 4224
  // tokens, so that a page of the one head that a rank has is 4224 * 512 bytes, and a state page of
  // the same size for each of 40 layers.
  TEST_CASE("of Nemotron-3-Super no padding is sent, where unified pages have 43.95 MB of it") {
    const Plan plan = plan_of("nemotron-3-super-120b-a12b");
    const Geometry one = geometry_of(plan), four = geometry_of(plan, {.ranks = 4});
    REQUIRE(four.pieces.size() == 40);
    const std::size_t state = four.pieces[0].conv_bytes + four.pieces[0].state_bytes;
    CHECK(state == 1039 * 1024);
    const std::size_t token = four.pages[0].page_bytes / 16;
    CHECK(token == 512);
    CHECK(40 * (4224 * token - state) == 43'950'080);
    const StoreLayout whole = flat_memory(one, 1, 1), quarter = flat_memory(four, 1, 1);
    std::size_t sent = 0;
    for (const ShardRun& run :
         shard_runs({one, whole}, {four, quarter}, whole.layout.slot_view())) {
      sent += run.bytes;
    }
    CHECK(sent == 4 * 40 * state);
  }

  TEST_CASE("heads that ranks cannot divide are refused with the layer and the numbers") {
    const Plan plan = plan_of("granite-4.0-h-350m");
    const std::string text = error_text([&] { geometry_of(plan, {.ranks = 5}); });
    CHECK(text.find("layer 0") != std::string::npos);
    CHECK(text.find("5 ranks") != std::string::npos);
    // One key head for all ranks, but three query heads that two cannot share.
    Plan odd = {.family = "test", .vocab = 8, .width = 4, .norm_eps = 1e-6F, .layers = {}};
    odd.layers = {{.blocks = {{.parts = {Attention{.heads = 3,
                                                   .kv_heads = 1,
                                                   .head_dim = 8,
                                                   .scale = 1.0F,
                                                   .rope = std::nullopt,
                                                   .qk_norm = std::nullopt}}}}}};
    CHECK(error_text([&] { geometry_of(odd, {.ranks = 2}); }).find("3 query heads") !=
          std::string::npos);
  }
}

}  // namespace shards_test
