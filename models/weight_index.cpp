#include "models/weight_index.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/file.h"
#include "kernels/linear/gguf_blocks.h"
#include "kernels/weight_source.h"
#include "models/drafting/head.h"
#include "models/families/gguf.h"
#include "models/weights.h"

namespace hyb::models {
namespace {

constexpr std::size_t weights_max = 1'000'000;
constexpr std::int64_t parameters_max = std::int64_t{1} << 60;

using Shape = std::vector<std::int64_t>;

/// Without dimensions of 1.
Shape condensed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

/// Puts numbers in the places of `{}`, in order.
std::string fill_numbers(std::string_view pattern, std::int32_t layer, std::int32_t expert) {
  std::string out;
  for (const std::int32_t number : {layer, expert}) {
    const std::size_t place = pattern.find("{}");
    if (place == std::string_view::npos) break;
    out.append(pattern.substr(0, place)).append(std::to_string(number));
    pattern.remove_prefix(place + 2);
  }
  return out.append(pattern);
}

/// Says whether a name is a pattern with some numbers in the places of `{}`.
bool matches(std::string_view pattern, std::string_view name) {
  for (std::size_t place = pattern.find("{}"); place != std::string_view::npos;
       place = pattern.find("{}")) {
    if (!name.starts_with(pattern.substr(0, place))) return false;
    name.remove_prefix(place);
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return false;
    name.remove_prefix(digits);
    pattern.remove_prefix(place + 2);
  }
  return name == pattern;
}

/// The first of these that there is, as it is or in groups.
const TensorInfo* find_any(const std::vector<std::string>& names, const TensorFiles& files) {
  for (const std::string& name : names) {
    if (const TensorInfo* found = files.find(name)) return found;
    if (const TensorInfo* found = find_codes(name, files)) return found;
  }
  return nullptr;
}

/// Lists the weights of a plan; the family says under which names, and in which layout.
class WeightLister : public WeightVisitor {
 public:
  WeightLister(const Plan& plan, const Family& family, const TensorFiles* files)
      : layers_(static_cast<std::int32_t>(plan.layers.size())),
        is_tied_(plan.tied_head),
        family_(family),
        files_(files) {}

  std::vector<RequiredWeight> take() { return std::move(weights_); }

  /// The layout that is stored; where the files don't say, the one that the family names (of two
  /// the first).
  bool is_fused(Role fused, Role piece, std::int32_t expert) override {
    if (!is_named(fused) || !is_named(piece)) return is_named(fused);
    if (files_ != nullptr) {
      if (is_stored(fused, -1)) return true;
      if (is_stored(piece, expert)) return false;
    }
    const auto first = std::find_if(
        family_.names.begin(), family_.names.end(),
        [&](const TensorName& name) { return name.role == fused || name.role == piece; });
    return first->role == fused;
  }

  kernels::Weight pack(const MatrixRows&, Packing) override { return {}; }
  bool pack_alike(const MatrixRows&, Packing, const MatrixRows&, Packing) override { return true; }

 private:
  kernels::WeightSource numbers(const Matrix& matrix) override {
    Shape shape = {matrix.rows, matrix.columns};
    if (matrix.transposed) std::swap(shape[0], shape[1]);
    if (matrix.experts > 0) shape.insert(shape.begin(), matrix.experts);
    require(matrix.role.is_matrix(), "required_weights: a part asks for small numbers as a matrix");
    add(matrix.role, std::move(shape), matrix.expert);
    return WeightVisitor::numbers(matrix);
  }

  float* visit_small(std::span<const Small> tensors) override {
    for (const Small& tensor : tensors) {
      if (tensor.role.is_none()) continue;
      require(!tensor.role.is_matrix(),
              "required_weights: a part asks for a matrix as small numbers");
      add(tensor.role, tensor.shape);
    }
    return nullptr;
  }

  /// The spellings of a name, numbers and trunks filled in.
  void spell(const TensorName& name, std::int32_t expert, std::vector<std::string>& out) const {
    if (!name.name.starts_with('*')) {
      out.push_back(fill_numbers(name.name, layer(), expert));
      return;
    }
    const bool is_draft = layer() >= layers_;
    const std::string rest =
        fill_numbers(name.name.substr(1), is_draft ? layer() - layers_ : layer(), expert);
    for (const std::string_view trunk : is_draft ? family_.draft_trunks : family_.trunks) {
      out.push_back(std::string(trunk) + rest);
    }
  }

  bool is_named(Role role) const {
    return std::any_of(family_.names.begin(), family_.names.end(),
                       [&](const TensorName& name) { return name.role == role; });
  }

  bool is_stored(Role role, std::int32_t expert) const {
    std::vector<std::string> names;
    for (const TensorName& name : family_.names) {
      if (name.role == role) spell(name, expert, names);
    }
    return find_any(names, *files_) != nullptr;
  }

  void add(Role role, Shape shape, std::int32_t expert = -1) {
    require(std::ssize(condensed(shape)) <= role.rank(),
            "required_weights: a tensor has at most the dimensions of its role");
    RequiredWeight weight = {
        .key = {role, layer(), expert}, .names = {}, .shape = std::move(shape)};
    for (const TensorName& name : family_.names) {
      if (name.role == role) spell(name, expert, weight.names);
    }
    // Of a tied embedding and head, the file may store only the head.
    for (const TensorName& name : family_.names) {
      if (is_tied_ && role == "embed" && name.role == "head") spell(name, expert, weight.names);
    }
    require(!weight.names.empty(),
            "required_weights: the family names role " + std::string(role.name()));
    if (weights_.size() >= weights_max) {
      throw Error(ErrorKind::model,
                  fmt::format("plan: more than {} tensors; look at the numbers of "
                              "layers and experts in config.json",
                              weights_max));
    }
    weights_.push_back(std::move(weight));
  }

  std::int32_t layers_;  // but for the draft layer
  bool is_tied_;
  const Family& family_;
  const TensorFiles* files_;  // none: of config.json alone
  std::vector<RequiredWeight> weights_;
};

}  // namespace

std::vector<RequiredWeight> required_weights(const Plan& plan, const Family& family,
                                             const TensorFiles* files) {
  WeightLister lister(plan, family, files);
  const bool has_head = plan.draft && plan.draft->is_apart();
  const WeightsOf own = is_head_family(family) ? WeightsOf::head : WeightsOf::model;
  visit_weights(plan, lister, has_head ? own : WeightsOf::all);
  std::vector<RequiredWeight> weights = lister.take();
  parameters(weights);
  return weights;
}

Role role_of(const Family& family, std::string_view name) {
  for (const TensorName& known : family.names) {
    if (!known.name.starts_with('*')) {
      if (matches(known.name, name)) return known.role;
      continue;
    }
    for (const std::string_view trunk : family.trunks) {
      if (name.starts_with(trunk) && matches(known.name.substr(1), name.substr(trunk.size()))) {
        return known.role;
      }
    }
  }
  return {};
}

bool has_draft_layer(const Family& family, const TensorFiles& files) {
  const std::vector<std::string_view> stored = files.names();
  return std::any_of(stored.begin(), stored.end(), [&](std::string_view name) {
    return role_of(family, plain_name(name)) == "draft.fc";
  });
}

std::int64_t parameters(const std::vector<RequiredWeight>& weights) {
  std::int64_t sum = 0;
  for (const RequiredWeight& weight : weights) {
    std::int64_t count = 1;
    bool too_many = false;
    for (const std::int64_t dimension : weight.shape) {
      too_many |= __builtin_mul_overflow(count, dimension, &count);
    }
    too_many |= __builtin_add_overflow(sum, count, &sum) || sum > parameters_max;
    if (too_many) {
      throw Error(ErrorKind::model,
                  fmt::format("plan: more than 2^60 parameters at {}; look at the sizes in "
                              "config.json",
                              weight.names.front()));
    }
  }
  return sum;
}

namespace {

std::string shown(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_plain(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

constexpr std::string_view blocks_end = "_blocks";

/// Groups of 32 numbers of E2M1, as bytes.
bool is_mxfp4(const TensorInfo& stored) {
  return stored.block == nullptr && stored.dtype == DType::u8 && stored.name.ends_with(blocks_end);
}

/// The shape of a matrix in MXFP4.
Shape mxfp4_shape(Shape shape) {
  shape.back() = (shape.back() + kernels::mxfp4_group - 1) / kernels::mxfp4_group;
  shape.push_back(kernels::mxfp4_group_bytes);
  return shape;
}

std::vector<std::string> scale_names(const TensorInfo& stored) {
  if (stored.dtype == DType::f8_e4m3) return {stored.name + "_scale_inv", stored.name + "_scale"};
  if (!is_mxfp4(stored)) return {};
  return {stored.name.substr(0, stored.name.size() - blocks_end.size()) + "_scales"};
}

CheckedTensor wrong(const TensorInfo& stored, std::string fault) {
  return {TensorVerdict::wrong, &stored, std::move(fault)};
}

std::int64_t elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// GGUF files leave out dimensions of 1, or have some more.
CheckedTensor check_in_gguf(const RequiredWeight& weight, const TensorInfo& stored) {
  if (!stored.fault.empty()) return wrong(stored, stored.fault);
  const bool is_vector = weight.shape.size() == 1;  // heads or groups may be a dimension of it
  if (is_vector ? elements(stored.shape) != weight.shape.front()
                : condensed(stored.shape) != condensed(weight.shape)) {
    return wrong(stored, "the file's keys ask for " + shown(weight.shape));
  }
  const bool is_read = stored.block != nullptr ? kernels::is_gguf_coded(stored.block->type) &&
                                                     weight.key.role.is_matrix()
                                               : is_plain(stored.dtype);
  if (!is_read) return wrong(stored, "this type is not read here");
  return {TensorVerdict::right, &stored};
}

CheckedTensor check_stored(const RequiredWeight& weight, const TensorInfo& stored,
                           const TensorInfo* scales) {
  const bool is_fp8 = stored.dtype == DType::f8_e4m3, has_blocks = is_mxfp4(stored);
  if (!stored.fault.empty()) return wrong(stored, stored.fault);
  const Shape shape = has_blocks ? mxfp4_shape(weight.shape) : weight.shape;
  if (stored.shape != shape) return wrong(stored, "config.json asks for " + shown(shape));
  const Role role = weight.key.role;
  const bool takes_codes = role.is_matrix() && role.kind() != RoleKind::expert_columns;
  if (!is_plain(stored.dtype) && !((is_fp8 || has_blocks) && takes_codes)) {
    return wrong(stored, "BF16, F16 and F32 are read, of matrices F8_E4M3 and MXFP4");
  }
  if (is_fp8 && scales == nullptr) return wrong(stored, "it has neither _scale nor _scale_inv");
  if (has_blocks && scales == nullptr) return wrong(stored, "it has no _scales");
  return {TensorVerdict::right, &stored};
}

/// Checks a matrix in groups; nullopt: it is not.
std::optional<CheckedWeight> check_in_groups(const RequiredWeight& weight, const TensorInfo& stored,
                                             const Plan& plan, const TensorFiles& files) {
  const bool transposed = weight.key.role.kind() == RoleKind::expert_columns;
  if (!weight.key.role.is_matrix() || !stored.fault.empty()) return std::nullopt;
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
  const bool is_stack = weight.shape.size() == 3 && stored.dtype == DType::u8 && !is_mxfp4(stored);
  const bool has_blocks = stored.block != nullptr && stored.block->type == GgufType::nvfp4;
  std::optional<GroupSpelling> spelling;
  GroupCheck found;
  if (has_blocks || is_stack) {
    spelling = GroupSpelling::nvfp4;
    found = has_blocks ? check_nvfp4_blocks(stored, weight.shape, files)
                       : check_stacked_groups(stored, weight.shape, transposed, files);
  } else if (weight.shape.size() == 2 && !transposed) {
    spelling = spelling_of(stored, rows);
    if (spelling) found = check_groups(*spelling, stored, rows, columns, files);
  }
  if (!spelling) return std::nullopt;
  CheckedWeight checked = {weight, {TensorVerdict::right, &stored}};
  if (found.wrong == &stored) checked.tensor = wrong(stored, std::move(found.fault));
  for (const TensorInfo* const beside : found.beside) {
    checked.beside.push_back(beside == found.wrong ? wrong(*beside, found.fault)
                                                   : CheckedTensor{TensorVerdict::right, beside});
  }
  if (found.wrong != nullptr) return checked;
  if (*spelling == GroupSpelling::gptq) found.groups.zeros_below = plan.zeros_below;
  checked.groups = std::move(found.groups);
  return checked;
}

CheckedWeight check(RequiredWeight weight, const Plan& plan, const TensorFiles& files) {
  const TensorInfo* const stored = find_any(weight.names, files);
  if (stored == nullptr) return {std::move(weight), {TensorVerdict::missing, nullptr}};
  if (files.are_gguf()) {
    CheckedTensor tensor = check_in_gguf(weight, *stored);
    const bool is_nvfp4 = stored->block != nullptr && stored->block->type == GgufType::nvfp4;
    if (tensor.verdict != TensorVerdict::right || !is_nvfp4) {
      return {std::move(weight), std::move(tensor)};
    }
  }
  if (auto checked = check_in_groups(weight, *stored, plan, files)) return std::move(*checked);
  const TensorInfo* const scales = find_any(scale_names(*stored), files);
  CheckedTensor tensor = check_stored(weight, *stored, scales);
  CheckedWeight checked = {std::move(weight), std::move(tensor)};
  if (scales == nullptr) return checked;
  checked.scales = scales_layout(*scales, *stored);
  if (checked.scales) {
    checked.beside.push_back({TensorVerdict::right, scales});
  } else if (is_mxfp4(*stored)) {
    checked.beside.push_back(wrong(
        *scales, fmt::format("no U8 scales of {}, one for each 16 bytes", shown(stored->shape))));
  } else {
    checked.beside.push_back(
        wrong(*scales, fmt::format("no BF16, F16 or F32 scales of {}, of its rows or of blocks of "
                                   "128 x 128",
                                   shown(stored->shape))));
  }
  return checked;
}

/// Architectures of GGUF files are wide: a bias or a scale of a weight would be missing in answers,
/// without a trace.
CheckedTensor check_other_in_gguf(const TensorInfo& stored) {
  const bool is_unused = std::ranges::any_of(
      gguf_unused, [&](std::string_view start) { return stored.name.starts_with(start); });
  if (is_unused) return {TensorVerdict::unused, &stored};
  return wrong(stored,
               "hyb has no place for it in this architecture, and without it the model "
               "would be another one; the folder of the same model's safetensors may do");
}

/// A tensor that the plan does not need.
CheckedTensor check_other(const Plan& plan, const Family& family, const TensorFiles& files,
                          const TensorInfo& stored) {
  if (is_known_unused(plan, family, stored.name)) return {TensorVerdict::unused, &stored};
  const Role role = role_of(family, plain_name(stored.name));
  if (role.is_none() && files.are_gguf()) return check_other_in_gguf(stored);
  if (role.is_none()) return {TensorVerdict::extra, &stored};
  return wrong(stored, fmt::format("a {} for which {} has no place; one of the two belongs to "
                                   "another model",
                                   role.name(), files.outline_name()));
}

}  // namespace

std::optional<StoredScales> scales_layout(const TensorInfo& scales, const TensorInfo& weight) {
  constexpr std::int64_t block = 128;
  std::span<const std::int64_t> own = scales.shape;
  const std::span<const std::int64_t> shape = weight.shape;
  if (is_mxfp4(weight)) {
    const bool fits = scales.dtype == DType::u8 && scales.fault.empty() &&
                      std::ranges::equal(own, shape.first(shape.size() - 1));
    if (!fits) return std::nullopt;
    const std::int64_t experts = own.size() == 3 ? own.front() : 1;
    const std::int64_t count =
        std::accumulate(own.begin(), own.end(), std::int64_t{1}, std::multiplies<>());
    return StoredScales{scales.name, 1, kernels::mxfp4_group, count / experts};
  }
  if (shape.size() < 2 || !is_plain(scales.dtype) || !scales.fault.empty()) return std::nullopt;
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (shape.size() == 3) {
    if (own.empty() || own.front() != shape.front()) return std::nullopt;
    own = own.subspan(1);
  }
  const std::int64_t row_blocks = (rows + block - 1) / block;
  const std::int64_t column_blocks = (columns + block - 1) / block;
  const StoredScales blocks = {scales.name, block, block, row_blocks * column_blocks};
  const bool is_blocks = own.size() == 2 && own[0] == row_blocks && own[1] == column_blocks;
  if (is_blocks) return blocks;
  const bool is_one = std::all_of(own.begin(), own.end(), [](std::int64_t d) { return d == 1; });
  if (is_one && own.size() <= 2) return StoredScales{scales.name, rows, columns, 1};
  if (own.front() == rows && (own.size() == 1 || (own.size() == 2 && own[1] == 1))) {
    return StoredScales{scales.name, 1, columns, rows};
  }
  return std::nullopt;
}

namespace {

/// Says whether the family counts the blocks of drafts on after the model's, and this is of one:
/// GGUF.
bool is_of_draft_block(const Plan& plan, const Family& family, std::string_view name) {
  const bool counts_on =
      std::any_of(family.names.begin(), family.names.end(), [](const TensorName& known) {
        return known.role == "draft.fc" && known.name.find("{}") != std::string_view::npos;
      });
  const std::string_view start = family.drafts_follow ? "model.layers." : "blk.";
  if (!(counts_on || family.drafts_follow) || !name.starts_with(start)) return false;
  std::size_t block = 0;
  const char* const first = name.data() + start.size();
  const auto read = std::from_chars(first, name.data() + name.size(), block);
  return read.ec == std::errc() && read.ptr != first && block >= plan.layers.size();
}

}  // namespace

bool is_known_unused(const Plan& plan, const Family& family, std::string_view name) {
  if (is_of_draft_block(plan, family, name)) return true;
  if (plan.tied_head && role_of(family, name) == "head") return true;  // load_model compares it
  for (const std::string_view end : {".input_scale", "_input_scale", ".input_global_scale",
                                     "activation_scale", ".k_scale", ".v_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return std::any_of(family.unused.begin(), family.unused.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

WeightCheck check_weights(const Plan& plan, const Family& family, const TensorFiles& files) {
  WeightCheck all;
  std::unordered_set<std::string_view> used;
  for (RequiredWeight& weight : required_weights(plan, family, &files)) {
    const CheckedWeight& checked = all.weights.emplace_back(check(std::move(weight), plan, files));
    if (checked.tensor.stored != nullptr) used.insert(checked.tensor.stored->name);
    for (const CheckedTensor& beside : checked.beside) used.insert(beside.stored->name);
  }
  for (const std::string_view name : files.names()) {
    if (used.contains(name)) continue;
    all.others.push_back(check_other(plan, family, files, *files.find(name)));
  }
  return all;
}

namespace {

void refuse_wrong(const CheckedTensor& tensor, const TensorFiles& files) {
  if (tensor.verdict != TensorVerdict::wrong) return;
  const TensorInfo& stored = *tensor.stored;
  throw Error(ErrorKind::model,
              fmt::format("{}: tensor {} is {} [{}]: {}", files.path_of(stored.name).string(),
                          quote_name(stored.name), stored.dtype_name(),
                          fmt::join(stored.shape, ", "), tensor.fault));
}

void refuse_missing(std::span<const RequiredWeight* const> missing, const TensorFiles& files) {
  if (missing.empty()) return;
  std::vector<std::string> named;
  for (const RequiredWeight* weight : missing.first(std::min<std::size_t>(missing.size(), 3))) {
    named.push_back(fmt::format("{} [{}]", weight->names.front(), fmt::join(weight->shape, ", ")));
  }
  throw Error(ErrorKind::model,
              fmt::format("{}: {} tensors that {} asks for are missing: {}{}", files.source(),
                          missing.size(), files.outline_name(), fmt::join(named, ", "),
                          named.size() < missing.size() ? ", ..." : ""));
}

}  // namespace

WeightIndex::WeightIndex(const Plan& plan, const Family& family, const TensorFiles& files)
    : files_(&files) {
  const WeightCheck check = check_weights(plan, family, files);
  std::vector<const RequiredWeight*> missing;
  for (const auto& [weight, tensor, beside, scales, groups] : check.weights) {
    refuse_wrong(tensor, files);
    for (const CheckedTensor& one : beside) refuse_wrong(one, files);
    if (tensor.verdict == TensorVerdict::missing) {
      missing.push_back(&weight);
      continue;
    }
    names_.emplace(weight.key, tensor.stored->name);
    if (scales) scales_.emplace(weight.key, *scales);
    if (groups) groups_.emplace(weight.key, *groups);
  }
  refuse_missing(missing, files);
  for (const CheckedTensor& tensor : check.others) {
    refuse_wrong(tensor, files);
    if (tensor.verdict == TensorVerdict::extra) extra_.push_back(tensor.stored->name);
  }
}

const StoredScales* WeightIndex::scales(const WeightKey& key) const {
  const auto found = scales_.find(key);
  return found == scales_.end() ? nullptr : &found->second;
}

const PublishedGroups* WeightIndex::groups(const WeightKey& key) const {
  const auto found = groups_.find(key);
  return found == groups_.end() ? nullptr : &found->second;
}

const std::string& WeightIndex::name(const WeightKey& key) const {
  const auto found = names_.find(key);
  require(found != names_.end(),
          fmt::format("WeightIndex: {} of layer {}, expert {}, is a weight of the plan",
                      key.role.name(), key.layer, key.expert));
  return found->second;
}

}  // namespace hyb::models
