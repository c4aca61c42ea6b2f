#include "models/geometry.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/memory_layout.h"
#include "tests/support/error_text.h"
#include "tests/support/plans.h"

namespace geometry_test {

using namespace hyb;
using namespace hyb::models;
using namespace hyb::testing;

namespace {

struct Row {
  std::string preset;
  std::vector<Edit> edits;
  std::size_t kv_bytes_per_token;
  double state_mib_f32;
  double state_mib_bf16;
  std::size_t recurrent_layers;
  std::size_t attention_layers;
};

double mib(const Plan& plan) {
  return static_cast<double>(geometry_of(plan).state_bytes_per_sequence) / (1 << 20);
}

}  // namespace

TEST_SUITE("models/geometry") {
  TEST_CASE("the published sizes per token and per sequence") {
    const Row rows[] = {
        {"granite-4.0-h-350m", {}, 4096, 21.3, 10.8, 28, 4},
        {"granite-4.0-h-micro", granite_1b(), 8192, 54.7, 27.7, 36, 4},
        {"granite-4.0-h-tiny", {}, 8192, 54.7, 27.7, 36, 4},
        {"granite-4.0-h-micro", {}, 8192, 72.9, 36.9, 36, 4},
        {"granite-4.0-h-tiny", granite_small(), 16384, 145.7, 73.7, 36, 4},
        {"nemotron-nano-12b-v2", nemotron_nano_9b(), 16384, 136.9, 69.4, 27, 4},
        {"nemotron-nano-12b-v2", {}, 24576, 142.0, 72.0, 28, 6},
        {"nemotron-3-nano-30b-a3b", {}, 6144, 46.8, 23.8, 23, 6},
        {"nemotron-3-nano-30b-a3b", nemotron_super(), 8192, 162.3, 82.3, 40, 8},
        {"qwen3-next-80b-a3b", {}, 24576, 73.7, 37.7, 36, 12},
    };
    for (const Row& row : rows) {
      CAPTURE(row.preset);
      Plan plan = plan_of(row.preset, row.edits);
      const Geometry geometry = geometry_of(plan);
      CHECK(geometry.kv_bytes_per_token == row.kv_bytes_per_token);
      CHECK(geometry.page_bytes == row.kv_bytes_per_token * 16);
      CHECK(geometry.pieces.size() == row.recurrent_layers);
      CHECK(geometry.pages.size() == row.attention_layers);
      CHECK(std::abs(mib(plan) - row.state_mib_f32) <= 0.051);
      plan.state_dtype = DType::bf16;
      CHECK(std::abs(mib(plan) - row.state_mib_bf16) <= 0.051);
    }
  }

  TEST_CASE("pieces of a slot are aligned, in order and do not overlap") {
    for (const char* preset :
         {"granite-4.0-h-350m", "nemotron-nano-12b-v2", "qwen3-next-80b-a3b"}) {
      for (const DType activation : {DType::bf16, DType::f32}) {
        const Geometry geometry =
            geometry_of(plan_of(preset), {.load = {.activation = activation}});
        std::size_t end = 0;
        std::size_t used = 0;
        for (const SlotPiece& piece : geometry.pieces) {
          CHECK(piece.conv_offset % slot_alignment == 0);
          CHECK(piece.state_offset % slot_alignment == 0);
          CHECK(piece.conv_offset >= end);
          CHECK(piece.state_offset >= piece.conv_offset + piece.conv_bytes);
          CHECK(piece.conv_bytes == static_cast<std::size_t>(piece.conv_channels) *
                                        static_cast<std::size_t>(piece.conv_width - 1) *
                                        size_of(activation));
          end = piece.state_offset + piece.state_bytes;
          used += piece.conv_bytes + piece.state_bytes;
        }
        CHECK(geometry.slot_bytes >= end);
        CHECK(geometry.slot_bytes % slot_alignment == 0);
        CHECK(geometry.state_bytes_per_sequence == used);
      }
    }
  }

  // Published with a scale per state column instead of a row: where a head has fewer rows than
  // columns, ours are smaller by up to 2 %.
  TEST_CASE("packed snapshots are no larger than published, and their parts do not overlap") {
    struct Packed {
      const char* preset;
      double mib;
    };
    for (const auto& [preset, mib] :
         {Packed{"nemotron-nano-12b-v2", 37.8}, Packed{"granite-4.0-h-tiny", 14.6},
          Packed{"qwen3-next-80b-a3b", 20.0}, Packed{"nemotron-3-nano-30b-a3b", 12.7}}) {
      CAPTURE(preset);
      Plan plan = plan_of(preset);
      for (const DType state : {DType::f32, DType::bf16}) {
        plan.state_dtype = state;
        const Geometry geometry = geometry_of(plan);
        const SnapshotLayout layout = snapshot_layout(geometry);
        const double packed_mib = static_cast<double>(layout.bytes) / (1 << 20);
        CHECK(packed_mib <= mib + 0.051);
        CHECK(packed_mib >= 0.98 * mib);
        REQUIRE(layout.pieces.size() == geometry.pieces.size());
        std::size_t end = 0;
        for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
          const kernels::SnapshotPiece& piece = layout.pieces[i];
          const SlotPiece& slot = geometry.pieces[i];
          CHECK(piece.slot_window == slot.conv_offset);
          CHECK(piece.slot_state == slot.state_offset);
          CHECK(piece.window_bytes == slot.conv_bytes);
          const auto elements = static_cast<std::size_t>(piece.rows * piece.columns);
          CHECK(elements * size_of(state) == slot.state_bytes);
          CHECK(piece.packed_window >= end);
          CHECK(piece.packed_scales >= piece.packed_window + piece.window_bytes);
          CHECK(piece.packed_values >=
                piece.packed_scales + 2 * static_cast<std::size_t>(piece.rows));
          CHECK(piece.packed_scales % slot_alignment == 0);
          end = piece.packed_values + elements;
        }
        CHECK(layout.bytes >= end);
        CHECK(layout.bytes % slot_alignment == 0);
      }
    }
  }

  TEST_CASE("a ring takes at most what was planned per draft, and its parts do not overlap") {
    struct PlannedRing {
      const char* preset;
      double mib_per_draft;
    };
    for (const auto& [preset, mib] :
         {PlannedRing{"nemotron-nano-12b-v2", 1.27}, PlannedRing{"granite-4.0-h-tiny", 0.46},
          PlannedRing{"qwen3-next-80b-a3b", 0.99}, PlannedRing{"nemotron-3-nano-30b-a3b", 0.50}}) {
      CAPTURE(preset);
      const Geometry geometry = geometry_of(plan_of(preset));
      for (const std::int32_t drafts : {4, 7}) {
        const RingLayout ring = ring_layout(geometry, drafts);
        const double ring_mib = static_cast<double>(ring.bytes) / (1 << 20);
        CHECK(ring_mib <= 1.1 * mib * drafts);
        CHECK(ring.bytes * 10 <= geometry.slot_bytes);
        std::size_t end = 0;
        for (std::size_t i = 0; i < geometry.pieces.size(); ++i) {
          CHECK(ring.offsets[i] >= end);
          CHECK(ring.offsets[i] % slot_alignment == 0);
          end = ring.offsets[i] + static_cast<std::size_t>(drafts) *
                                      static_cast<std::size_t>(geometry.pieces[i].ring_width) *
                                      size_of(geometry.load.activation);
        }
        CHECK(ring.bytes >= end);
      }
      CHECK(ring_layout(geometry, 0).bytes == 0);
    }
  }

  TEST_CASE("pages name their layer and follow the dtype of keys and values") {
    const Plan plan = plan_of("granite-4.0-h-350m");
    const Geometry geometry = geometry_of(plan, {.kv = DType::f32});
    REQUIRE(geometry.pages.size() == 4);
    CHECK(geometry.pages[0].layer == 10);
    CHECK(geometry.pages[3].layer == 27);
    CHECK(geometry.pages[0].elements_per_token == 2 * 4 * 64);
    CHECK(geometry.pages[0].page_bytes == 2 * 4 * 64 * 16 * 4);
    CHECK(geometry.kv_bytes_per_token == 8192);
    CHECK(geometry.pieces[10].layer == 11);
  }

  TEST_CASE("a layer with a window takes as many tokens as it has, and no more") {
    const Geometry all = geometry_of(plan_of("qwen3-0.6b"));
    const Geometry some = geometry_of(plan_of(
        "qwen3-0.6b",
        {{"use_sliding_window", "true"}, {"sliding_window", "512"}, {"max_window_layers", "7"}}));
    CHECK(4 * some.kv_bytes_per_token == all.kv_bytes_per_token);
    CHECK(some.window_kv_bytes == 512 * (all.kv_bytes_per_token - some.kv_bytes_per_token));
    CHECK(all.window_kv_bytes == 0);
    CHECK(some.page_bytes == all.page_bytes);
    CHECK(page_groups(some, false) == 2);
    CHECK(page_groups(some, true) == 1);
    CHECK(some.pages[6].reach == Reach{});
    CHECK(some.pages[7].reach == Reach{Reach::Kind::window, 512});
  }

  TEST_CASE("sizes for any type of keys, values and states, and any page") {
    const Plan plan = plan_of("nemotron-3-nano-30b-a3b");
    const Geometry usual = geometry_of(plan);
    for (const DType kv : {DType::f8_e4m3, DType::bf16, DType::f32}) {
      for (const DType state : {DType::bf16, DType::f32}) {
        for (const std::int32_t page : {16, 32, 64, 128}) {
          const Geometry g = geometry_of(plan, {.kv = kv, .state = state, .page_tokens = page});
          CHECK(2 * g.kv_bytes_per_token == size_of(kv) * usual.kv_bytes_per_token);
          CHECK(g.page_bytes == g.kv_bytes_per_token * static_cast<std::size_t>(page));
          CHECK(g.state_dtype == state);
          CHECK((g.slot_bytes < usual.slot_bytes) == (state == DType::bf16));
          CHECK(snapshot_layout(g).bytes == snapshot_layout(usual).bytes);
        }
      }
    }
  }

  TEST_CASE("a model without recurrence has no slot, one without attention no pages") {
    const std::vector<Edit> only_attention = {{"layer_types", layer_types(2, {0, 1})},
                                              {"num_hidden_layers", "2"}};
    const Geometry attention = geometry_of(plan_of("granite-4.0-h-350m", only_attention));
    CHECK(attention.slot_bytes == 0);
    CHECK(snapshot_layout(attention).bytes == 0);
    const std::vector<Edit> only_mamba = {{"layer_types", layer_types(2, {})},
                                          {"num_hidden_layers", "2"}};
    CHECK(geometry_of(plan_of("granite-4.0-h-350m", only_mamba)).page_bytes == 0);
  }

  TEST_CASE("a hostile plan is refused, not wrapped around") {
    const std::vector<Edit> huge = {{"ssm_state_size", "2097152"}, {"mamba_head_dim", "262144"}};
    Plan plan = plan_of("qwen3-next-80b-a3b");
    auto& delta = std::get<DeltaNet>(plan.layers[0].blocks[0].parts[0]);
    delta.key_dim = delta.value_dim = 1 << 24;
    CHECK(contains(model_error([&] { geometry_of(plan); }), "2^44 bytes"));
    CHECK(model_error([&] { plan_of("nemotron-nano-12b-v2", huge); }) != "");
  }
}

}  // namespace geometry_test
