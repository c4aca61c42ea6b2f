// The launches of a model's steps on a card, recorded through the emulator's runtime without
// weights and without running anything, so that a model of any size needs no memory. One JSON
// object per line: for each step one of the step itself, then one of each piece of work in order.
//
//     ninja card_steps && ./card_steps PRESET bf16|fp8|bits12
//     [decode:ROWS:POSITION|prefill:TOKENS:POSITION]...
//     [verify:ROWS:POSITION:DRAFTS[:DRAFTS OF A BRANCH]|draft:ROWS:POSITION:DRAFTS]...
//
// With a verify or draft step the model has its draft layer, in the other steps, too.
// scripts/card/model.py predicts from them. FP8: linear weights and experts have codes; embedding,
// head, routers and gates are plain, as they are published. bits12: --lossless on, without patches.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/runtime/memory_plan.h"
#include "core/base/error.h"
#include "kernels/card.h"
#include "kernels/linear/bits12_rows.h"
#include "models/families.h"
#include "models/roofline.h"
#include "models/runner.h"
#include "models/weights.h"
#include "tests/cuda_emulator/device/accesses.h"
#include "tests/tools/recorded_step.h"

using namespace hyb;
using namespace hyb::models;
using namespace hyb::models::testing;

namespace {

using Json = nlohmann::ordered_json;

/// A matrix on the card, to be found by an address that a kernel is given.
struct Matrix {
  std::string role;
  std::size_t bytes;
  std::int64_t experts, rows, columns;
  bool is_draft;  ///< of the draft layer
};
using Matrices = std::map<std::uintptr_t, Matrix>;

/// Weights without numbers.
class Reserver : public WeightVisitor {
 public:
  Reserver(const Plan& plan, kernels::WeightCode code, Matrices& matrices)
      : layers_(std::ssize(plan.layers)), code_(code), matrices_(matrices) {}

  bool pack_alike(const MatrixRows&, Packing packing_a, const MatrixRows&,
                  Packing packing_b) override {
    return code_of(packing_a) == code_of(packing_b) &&
           (packing_a == Packing::f32) == (packing_b == Packing::f32);
  }

  kernels::Weight pack(const MatrixRows& rows, Packing packing) override {
    const bool is_too_narrow = code_ == kernels::WeightCode::bits12 &&
                               !kernels::bits12_rows_take({rows.rows(), rows.columns()});
    kernels::Weight weight =
        kernels::Weight::reserve(is_too_narrow ? kernels::WeightCode::plain : code_of(packing),
                                 packing == Packing::f32 ? DType::f32 : DType::bf16, rows.experts(),
                                 rows.rows(), rows.columns());
    const std::string role(rows.stored().front().first.name());
    // Of heads each has one, and every step reads all.
    const std::int64_t experts = role.starts_with("mla.") ? 1 : rows.experts();
    matrices_[reinterpret_cast<std::uintptr_t>(weight.expert(0))] = {
        .role = role,
        .bytes = weight.owned_bytes(),
        .experts = experts,
        .rows = rows.experts() / experts * rows.rows(),
        .columns = rows.columns(),
        .is_draft = layer() >= layers_};
    return weight;
  }

  std::vector<kernels::Buffer> take_vectors() { return std::move(vectors_); }

 private:
  kernels::WeightCode code_of(Packing packing) const {
    const bool is_coded = packing == Packing::linear ||
                          (packing == Packing::head && code_ == kernels::WeightCode::bits12);
    return is_coded ? code_ : kernels::WeightCode::plain;
  }

  float* visit_small(std::span<const Small> tensors) override {
    std::int64_t count = 0;
    for (const Small& tensor : tensors) count += tensor.count() * tensor.times;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    return reinterpret_cast<float*>(vectors_.emplace_back(kernels::Device::cuda, bytes).data());
  }

  std::int64_t layers_;       ///< but for the draft layer
  kernels::WeightCode code_;  ///< or plain
  Matrices& matrices_;
  std::vector<kernels::Buffer> vectors_;
};

class Recorder {
 public:
  Recorder(const std::string& preset, kernels::WeightCode code, bool with_drafts)
      : plan_(plan_of(Config::from_folder(preset), with_drafts)),
        queue_(kernels::Device::cuda, {.threads = 1, .isa = {}}) {
    if (with_drafts && !plan_.draft) {
      throw Error(ErrorKind::usage, preset + " has no draft layer: there are no drafts to record");
    }
    Reserver reserver(plan_, code, matrices_);
    weights_ = visit_weights(plan_, reserver);
    weights_.vectors = reserver.take_vectors();
    geometry_ = geometry_of(plan_, {.load = {.activation = DType::bf16}});
  }

  void record(const std::string& text) {
    const Workload workload = workload_of(text);
    const std::vector<emulator::RecordedWork> records =
        record_step(queue_, plan_, weights_, geometry_, workload);
    print(text, workload);
    for (const emulator::RecordedWork& one : records) print(one);
  }

 private:
  void print(const std::string& text, const Workload& workload) const {
    std::int32_t experts = 0, active = 0;
    double attention_width = 0, token_flops = 0, chunk_flops = 0, kv_heads_dim = 0;
    std::int64_t chunk_tokens = 0;
    int attention_layers = 0, state_layers = 0;
    plan_.visit_parts([&](const auto& part) {
      const PartWork work = part.work();
      experts = std::max(experts, work.experts);
      active = std::max(active, work.active);
      attention_width = std::max(attention_width, work.attention_width);
      token_flops = std::max(token_flops, work.token_flops);
      chunk_flops = std::max(chunk_flops, work.chunk_flops);
      chunk_tokens = std::max(chunk_tokens, work.chunk_tokens);
      attention_layers += work.attention_width > 0 ? 1 : 0;
      state_layers += part.memory().state ? 1 : 0;
      if (part.memory().kv) {
        const auto kv = *part.memory().kv;
        kv_heads_dim = (kv.are_latents ? 1.0 : 2.0) * kv.kv_heads * kv.head_dim;
      }
    });
    std::size_t state_bytes = 0;
    for (const SlotPiece& piece : geometry_.pieces) {
      state_bytes = std::max(state_bytes, piece.state_bytes);
    }
    const std::int64_t rows = workload.sequences(), tokens = rows * workload.tokens();
    const double floor_bytes =
        weight_bytes(workload, active) * (workload.kind == WorkKind::draft ? workload.drafts : 1) +
        static_cast<double>(rows) * memory_bytes(workload);
    const Roofline roofline(plan_, geometry_);
    const Work work = roofline.step(
        workload.kind == WorkKind::prefill
            ? StepShape{.tokens = workload.count, .position = workload.position, .rows = 0}
            : StepShape{.sequences = rows,
                        .tokens = workload.tokens(),
                        .position = workload.position,
                        .rows = workload.tokens()});
    std::puts(Json{{"step", text},
                   {"sequences", rows},
                   {"tokens", tokens},
                   {"spans", rows * (workload.has_branch() ? 2 : 1)},
                   {"position", workload.position},
                   {"flops", workload.kind == WorkKind::draft ? 0 : work.flops},
                   {"floor_bytes", floor_bytes},
                   {"kv_bytes_per_token", geometry_.kv_bytes_per_token},
                   {"kv_layer_bytes_per_token", 2.0 * kv_heads_dim},
                   {"state_layer_bytes", state_bytes},
                   {"experts", experts},
                   {"active", active},
                   {"attention_width", attention_width},
                   {"attention_layers", attention_layers},
                   {"state_layers", state_layers},
                   {"token_flops", token_flops},
                   {"chunk_flops", chunk_flops},
                   {"chunk_tokens", chunk_tokens},
                   {"width", plan_.width},
                   {"vocab", plan_.vocab},
                   {"prefill_chunk", prefill_chunk()}}
                  .dump()
                  .c_str());
  }

  /// That a step touches; of drafts one pass.
  double weight_bytes(const Workload& workload, std::int32_t active) const {
    const bool drafts = workload.kind == WorkKind::draft;
    const auto tokens = static_cast<double>(workload.sequences() * workload.tokens());
    double bytes = 0;
    for (const auto& [at, m] : matrices_) {
      const bool is_lookup = m.role == "embed" && !plan_.tied_head;
      const bool is_head = m.role == "head" || m.role == "embed";
      if (is_lookup || (is_head && workload.kind == WorkKind::prefill)) continue;
      if (!is_head && m.is_draft != drafts) continue;
      const double missed =
          m.experts > 1
              ? std::pow(1.0 - static_cast<double>(active) / static_cast<double>(m.experts), tokens)
              : 0;
      bytes += static_cast<double>(m.bytes) * (1 - missed);
    }
    return bytes;
  }

  /// Of a sequence, what a step touches; drafts read few keys.
  double memory_bytes(const Workload& workload) const {
    if (workload.kind == WorkKind::draft) return 0;
    return 2.0 * static_cast<double>(geometry_.state_bytes_per_sequence) +
           static_cast<double>(geometry_.kv_bytes_per_token) * workload.position;
  }

  /// Prompt tokens of a step where a session has an H200 for itself.
  std::int32_t prefill_chunk() const {
    const kernels::Card card = kernels::card();
    app::Budget budget(std::size_t{130} << 30);
    budget.device = kernels::Device::cuda;
    budget.rates = {.bytes_per_s = card.bytes_per_s, .flops_per_s = card.flops_per_s};
    for (const auto& [at, matrix] : matrices_) budget.weights += matrix.bytes;
    return app::chunk_tokens_of(plan_, geometry_, budget, 1);
  }

  void print(const emulator::RecordedWork& one) const {
    Json line;
    if (one.product[0] > 0) {
      line = {{"product", one.product}};
    } else if (one.kernel == nullptr) {
      line = {{"copy", one.bytes}};
    } else {
      line = {{"kernel", emulator::kernel_name(one.kernel)},
              {"blocks", one.blocks},
              {"threads", one.threads},
              {"shared", one.shared_bytes},
              {"cooperative", one.cooperative},
              {"pdl", one.starts_early}};
      for (std::size_t i = 0; i + 8 <= one.arguments.size(); i += 8) {
        std::uintptr_t word = 0;
        std::memcpy(&word, one.arguments.data() + i, sizeof(word));
        const auto found = matrices_.find(word);
        if (found == matrices_.end()) continue;
        const Matrix& m = found->second;
        line["weights"].push_back({{"role", m.role},
                                   {"bytes", m.bytes},
                                   {"experts", m.experts},
                                   {"rows", m.rows},
                                   {"columns", m.columns}});
      }
    }
    std::puts(line.dump().c_str());
  }

  Plan plan_;
  kernels::Queue queue_;
  Matrices matrices_;
  Weights weights_;
  Geometry geometry_;
};

int main_of(int count, char** values) {
  const std::map<std::string, kernels::WeightCode> codes = {
      {"bf16", kernels::WeightCode::plain},
      {"fp8", kernels::WeightCode::fp8},
      {"bits12", kernels::WeightCode::bits12}};
  if (count < 4 || !codes.contains(values[2])) {
    throw Error(ErrorKind::usage, "card_steps PRESET_FOLDER bf16|fp8|bits12 STEP...");
  }
  const std::vector<std::string> steps(values + 3, values + count);
  const bool with_drafts = std::ranges::any_of(
      steps, [](const std::string& text) { return workload_of(text).has_drafts(); });
  emulator::record_only(std::size_t{1} << 42);
  Recorder recorder(values[1], codes.at(values[2]), with_drafts);
  for (const std::string& text : steps) recorder.record(text);
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    return main_of(count, values);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
