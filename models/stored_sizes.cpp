#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "core/base/strings.h"
#include "kernels/linear/gguf_panels.h"
#include "kernels/linear/gguf_rows.h"
#include "models/weight_index.h"

namespace hyb::models {
namespace {

std::int64_t elements(const RequiredWeight& weight) {
  return std::accumulate(weight.shape.begin(), weight.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// Says whether a tensor is of this type, as safetensors or GGUF files have it.
bool is_stored_as(const CheckedWeight& checked, DType dtype) {
  const TensorInfo& stored = *checked.tensor.stored;
  if (stored.block != nullptr) {
    return dtype == DType::u8 && stored.block->type == GgufType::mxfp4;
  }
  return stored.dtype == dtype && !checked.groups;
}

/// Parameters of the matrices that the files have as this type, or as any.
std::int64_t stored_parameters(const WeightCheck& check, std::optional<DType> dtype) {
  std::int64_t count = 0;
  for (const CheckedWeight& checked : check.weights) {
    if (checked.tensor.verdict != TensorVerdict::right || !checked.weight.key.role.is_matrix())
      continue;
    if (dtype && !is_stored_as(checked, *dtype)) continue;
    count += elements(checked.weight);
  }
  return count;
}

/// Says whether these are gates or ups of a layer's experts and the two differ in type: as one
/// matrix they are then not in blocks.
bool is_of_mixed_experts(const CheckedWeight& checked, const WeightCheck& check) {
  const WeightKey& key = checked.weight.key;
  const bool is_gate = key.role == "moe.gate_stack";
  if (!is_gate && key.role != "moe.up_stack") return false;
  const Role beside = is_gate ? Role("moe.up_stack") : "moe.gate_stack";
  return std::ranges::any_of(check.weights, [&](const CheckedWeight& other) {
    return other.weight.key.role == beside && other.weight.key.layer == key.layer &&
           other.tensor.stored != nullptr &&
           other.tensor.stored->block != checked.tensor.stored->block;
  });
}

}  // namespace

std::int64_t fp8_parameters(const Plan& plan, const Family& family, const TensorFiles& files) {
  return stored_parameters(check_weights(plan, family, files), DType::f8_e4m3);
}

std::int64_t mxfp4_parameters(const Plan& plan, const Family& family, const TensorFiles& files) {
  return stored_parameters(check_weights(plan, family, files), DType::u8);
}

PackedBlocks packed_blocks(const Plan& plan, const Family& family, const TensorFiles& files,
                           kernels::Device device) {
  PackedBlocks all;
  std::map<std::string_view, double> types;
  const Role head = plan.tied_head ? Role("embed") : "head";
  const WeightCheck check = check_weights(plan, family, files);
  for (const CheckedWeight& checked : check.weights) {
    const TensorInfo* const stored = checked.tensor.stored;
    const bool is_on_card = device == kernels::Device::cuda;
    const std::vector<std::int64_t>& shape = checked.weight.shape;
    const bool is_transposed = checked.weight.key.role.kind() == RoleKind::expert_columns;
    const std::int64_t rows = kernels::Weight::panel_rows;
    const std::int64_t columns = is_transposed ? shape[1] : shape.back();
    std::int64_t of_rows = 0;
    std::string_view type_name = groups_name;
    if (checked.groups) {
      const kernels::GroupCodes& codes = checked.groups->codes;
      const bool is_reordered =
          !checked.groups->order.empty() &&
          (plan.reorders_columns || checked.groups->spelling != GroupSpelling::gptq);
      const bool is_of_experts = checked.weight.key.role.kind() == RoleKind::expert;
      if (is_on_card && (!kernels::card_keeps(codes, columns) ||
                         (is_reordered && !kernels::card_keeps_order(is_of_experts, shape[0])))) {
        continue;
      }
      if (is_reordered) {
        all.ordered_columns = std::max(all.ordered_columns, columns);
        all.bytes += static_cast<double>(columns) * sizeof(std::int32_t);
      }
      of_rows = is_on_card
                    ? kernels::GgufRowsShape{codes.levels, rows, columns, codes}.expert_bytes()
                    : kernels::coded_shape(codes, rows, columns).panel_bytes();
    } else {
      if (checked.tensor.verdict != TensorVerdict::right || stored->block == nullptr) continue;
      if (is_of_mixed_experts(checked, check)) continue;
      const GgufType type = stored->block->type;
      type_name = stored->block->name;
      if (is_on_card ? !kernels::card_keeps(type)
                     : kernels::gguf_code_bits(type) == 0 || type == GgufType::mxfp4) {
        continue;
      }
      of_rows = is_on_card ? kernels::GgufRowsShape{type, rows, columns}.expert_bytes()
                           : kernels::coded_shape(type, rows, columns).panel_bytes();
    }
    const double bytes = static_cast<double>(of_rows) / static_cast<double>(rows * columns);
    const std::int64_t parameters = elements(checked.weight);
    all.parameters += parameters;
    all.bytes += static_cast<double>(parameters) * bytes;
    types[type_name] += static_cast<double>(parameters) * bytes;
    if (checked.weight.key.role == head) all.head_bytes = bytes;
  }
  all.types = names_by_size(types);
  return all;
}

double f16_share(const Plan& plan, const Family& family, const TensorFiles& files) {
  const WeightCheck check = check_weights(plan, family, files);
  const std::int64_t all = stored_parameters(check, std::nullopt);
  const std::int64_t halves = stored_parameters(check, DType::f16);
  return all > 0 ? static_cast<double>(halves) / static_cast<double>(all) : 0.0;
}

}  // namespace hyb::models
