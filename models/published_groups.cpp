#include "models/published_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <numeric>

#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::models {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::string_view weight_end = ".weight", packed_end = "_packed", qweight_end = ".qweight";
constexpr std::int64_t nvfp4_group = 16, in_word = 8;

bool is_float(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

/// Collects the tensors of one matrix.
class GroupChecker {
 public:
  GroupChecker(GroupSpelling spelling, const TensorInfo& stored, const TensorFiles& files)
      : GroupChecker(spelling, stored, files, stored.name.substr(0, stored.name.rfind('.') + 1)) {}
  /// `start`: of the names of what belongs to it.
  GroupChecker(GroupSpelling spelling, const TensorInfo& stored, const TensorFiles& files,
               std::string start)
      : stored_(stored), files_(files), module_(std::move(start)) {
    check.groups.spelling = spelling;
  }

  GroupCheck check;

  void refuse(const TensorInfo& tensor, std::string fault) {
    if (check.wrong != nullptr) return;
    check.wrong = &tensor;
    check.fault = std::move(fault);
  }

  void demand(const TensorInfo& tensor, DType dtype, const Shape& shape) {
    if (!tensor.fault.empty()) return refuse(tensor, tensor.fault);
    if (tensor.dtype == dtype && tensor.shape == shape) return;
    refuse(tensor,
           fmt::format("config.json asks for {} [{}]", name_of(dtype), fmt::join(shape, ", ")));
  }

  /// The first of these that is there.
  const TensorInfo* find(std::initializer_list<std::string_view> ends, bool is_needed) {
    for (const std::string_view end : ends) {
      const TensorInfo* const found = files_.find(module_ + std::string(end));
      if (found == nullptr) continue;
      check.beside.push_back(found);
      return found;
    }
    if (is_needed) refuse(stored_, fmt::format("it has no {}", fmt::join(ends, " nor ")));
    return nullptr;
  }

 private:
  const TensorInfo& stored_;
  const TensorFiles& files_;
  std::string module_;
};

/// Says whether packed codes have 8 bits.
bool is_wide(GroupSpelling spelling, const TensorInfo& stored, std::int64_t rows,
             std::int64_t columns) {
  return spelling == GroupSpelling::packed && stored.shape == Shape{rows, columns / 4};
}

void demand_codes(GroupChecker& checker, const TensorInfo& stored, std::int64_t rows,
                  std::int64_t columns) {
  const GroupSpelling spelling = checker.check.groups.spelling;
  switch (spelling) {
    case GroupSpelling::packed:
      return checker.demand(
          stored, DType::i32,
          {rows, columns / (is_wide(spelling, stored, rows, columns) ? 4 : in_word)});
    case GroupSpelling::nvfp4:
      return checker.demand(stored, DType::u8, {rows, columns / 2});
    case GroupSpelling::int8:
      return checker.demand(stored, DType::i8, {rows, columns});
    case GroupSpelling::awq:
      return checker.demand(stored, DType::i32, {columns, rows / in_word});
    case GroupSpelling::gptq:
      return checker.demand(stored, DType::i32, {columns / in_word, rows});
  }
}

/// Word `word` of packed ones, its code `i` from the low end.
unsigned code_in(const std::byte* words, std::int64_t word, std::int64_t i) {
  return std::to_integer<unsigned>(words[word * 4 + i / 2]) >> (i % 2 * 4) & 15U;
}

/// Code i of eight lies here in a word of AWQ.
constexpr std::array<std::int8_t, in_word> awq_places = {0, 4, 1, 5, 2, 6, 3, 7};

std::int64_t place_in(GroupSpelling spelling, std::int64_t i) {
  return spelling == GroupSpelling::awq ? awq_places[static_cast<std::size_t>(i)] : i;
}

[[noreturn]] void fail(const std::string& tensor, const std::string& fault) {
  throw Error(ErrorKind::model, fmt::format("tensor {}: {}", quote_name(tensor), fault));
}

void check_scales(const std::string& name, const TensorView& view) {
  const bool is_e4m3 = view.dtype == DType::f8_e4m3;
  const auto count = static_cast<std::int64_t>(view.bytes.size() / size_of(view.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_right =
        is_e4m3 ? std::to_integer<unsigned>(view.bytes[static_cast<std::size_t>(i)]) < 0x7fU
                : std::isfinite(kernels::published_value(view.bytes.data(), view.dtype, i));
    if (!is_right) {
      fail(name, fmt::format("scale {} is {}; the file is damaged", i,
                             is_e4m3 ? "NaN or below 0" : "not finite"));
    }
  }
}

template <typename T>
T number_in(const TensorView& view, std::int64_t i) {
  T number;
  std::memcpy(&number, view.bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return number;
}

/// Returns the unit of all experts, or of one.
float unit_of(const PublishedGroups& groups, const TensorFiles& files, std::int64_t expert = 0) {
  if (groups.unit.empty()) return 1;
  const TensorView units = files.view(groups.unit);
  const auto stored = number_in<float>(units, units.bytes.size() > sizeof(float) ? expert : 0);
  const float unit = groups.unit.ends_with("global_scale") ? 1 / stored : stored;
  if (!(unit > 0x1p-100F && unit < 0x1p100F)) {
    fail(groups.unit, fmt::format("a scale of all is to be above 0 and finite, is {}", stored));
  }
  return unit;
}

/// Says whether groups are no runs of columns (desc_act).
bool is_reordered(const PublishedGroups& groups, std::int64_t columns, const TensorFiles& files) {
  if (groups.order.empty()) return false;
  const TensorView order = files.view(groups.order);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(columns / groups.group));
  bool are_runs = true;
  for (std::int64_t k = 0; k < columns; ++k) {
    const auto group = number_in<std::int32_t>(order, k);
    if (group < 0 || group >= std::ssize(counts)) {
      fail(groups.order, fmt::format("column {} is of group {}, of {}; the file is damaged", k,
                                     group, counts.size()));
    }
    ++counts[static_cast<std::size_t>(group)];
    are_runs = are_runs && group == k / groups.group;
  }
  for (std::size_t g = 0; g < counts.size(); ++g) {
    if (counts[g] == groups.group) continue;
    fail(groups.order, fmt::format("group {} has {} columns, not {}; hyb reads groups of one size",
                                   g, counts[g], groups.group));
  }
  return !are_runs;
}

/// Zero points by rows, less the 8 that codes count from.
void read_zeros(const PublishedGroups& groups, const std::byte* words, std::int64_t rows,
                std::int64_t count, std::byte* out) {
  const bool by_rows = groups.spelling == GroupSpelling::packed;
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t place = place_in(groups.spelling, n % in_word);
    for (std::int64_t g = 0; g < count; ++g) {
      const std::int64_t word = by_rows ? n / in_word * count + g : (g * rows + n) / in_word;
      const auto zero = static_cast<std::int32_t>(code_in(words, word, place));
      out[n * count + g] = static_cast<std::byte>(zero + groups.zeros_below - 8);
    }
  }
}

/// Codes of AWQ and GPTQ as rows with even columns in the low halves of bytes.
void turn_codes(GroupSpelling spelling, const std::byte* words, std::int64_t rows,
                std::int64_t columns, std::byte* out) {
  const bool is_awq = spelling == GroupSpelling::awq;
  for (std::int64_t first = 0; first < rows; first += in_word) {
    for (std::int64_t k = 0; k < columns; k += 2) {
      for (std::int64_t n = first; n < first + in_word; ++n) {
        const auto code = [&](std::int64_t column) {
          return is_awq ? code_in(words, (column * rows + n) / in_word,
                                  place_in(spelling, n % in_word))
                        : code_in(words, column / in_word * rows + n, column % in_word);
        };
        out[(n * columns + k) / 2] = static_cast<std::byte>(code(k) | code(k + 1) << 4);
      }
    }
  }
}

/// [rows, columns] of bytes to [columns, rows].
void turn_bytes(const std::byte* from, std::int64_t rows, std::int64_t columns, std::byte* to) {
  for (std::int64_t i = 0; i < rows * columns; ++i) to[i % columns * rows + i / columns] = from[i];
}

/// Blocks of 64 columns: 4 scales, whose highest bit does not count and of which 0x7f is 0, then
/// for each 16 columns 8 bytes with the first 8 of them in their low halves.
void split_blocks(std::span<const std::byte> blocks, std::byte* codes, std::byte* scales) {
  constexpr std::size_t block_bytes = 36, group_bytes = 8;
  for (; !blocks.empty(); blocks = blocks.subspan(block_bytes)) {
    for (std::size_t s = 0; s < 4; ++s) {
      const std::byte scale = blocks[s] & std::byte{0x7f};
      *scales++ = scale == std::byte{0x7f} ? std::byte{} : scale;
      const auto halves = blocks.subspan(4 + s * group_bytes, group_bytes);
      for (std::size_t i = 0; i < group_bytes; i += 2) {
        codes[i / 2] = (halves[i] & std::byte{15}) | halves[i + 1] << 4;
        codes[4 + i / 2] = halves[i] >> 4 | (halves[i + 1] & std::byte{0xf0});
      }
      codes += group_bytes;
    }
  }
}

void demand_unit(GroupChecker& checker, const TensorInfo* unit, std::int64_t experts) {
  if (unit == nullptr) return;
  checker.check.groups.unit = unit->name;
  const bool is_one = unit->shape.empty() || unit->shape == Shape{experts};
  checker.demand(*unit, DType::f32, is_one ? unit->shape : Shape{1});
}

constexpr kernels::GroupCodes nvfp4_codes = {
    .levels = GgufType::mxfp4, .scales = DType::f8_e4m3, .has_zeros = false, .group = nvfp4_group};

}  // namespace

std::string plain_name(std::string_view stored) {
  if (stored.ends_with(qweight_end)) {
    return std::string(stored.substr(0, stored.size() - qweight_end.size())).append(weight_end);
  }
  const std::string_view whole = stored.substr(0, stored.size() - packed_end.size());
  const bool is_packed = stored.ends_with(packed_end) && whole.ends_with(weight_end);
  return std::string(is_packed ? whole : stored);
}

const TensorInfo* find_codes(const std::string& weight, const TensorFiles& files) {
  if (!weight.ends_with(weight_end) || files.are_gguf()) return nullptr;
  if (const TensorInfo* found = files.find(weight + std::string(packed_end))) return found;
  const std::string module = weight.substr(0, weight.size() - weight_end.size());
  return files.find(module + std::string(qweight_end));
}

std::optional<GroupSpelling> spelling_of(const TensorInfo& stored, std::int64_t rows) {
  if (stored.name.ends_with(qweight_end)) {
    const bool is_turned = !stored.shape.empty() && stored.shape.back() == rows;
    return is_turned ? GroupSpelling::gptq : GroupSpelling::awq;
  }
  const bool is_packed = plain_name(stored.name) != stored.name;
  if (!is_packed && !stored.name.ends_with(weight_end)) return std::nullopt;
  if (stored.dtype == DType::u8) return GroupSpelling::nvfp4;
  if (is_packed) return GroupSpelling::packed;
  if (stored.dtype == DType::i8) return GroupSpelling::int8;
  return std::nullopt;
}

GroupCheck check_groups(GroupSpelling spelling, const TensorInfo& stored, std::int64_t rows,
                        std::int64_t columns, const TensorFiles& files) {
  GroupChecker checker(spelling, stored, files);
  PublishedGroups& groups = checker.check.groups;
  const bool is_packed8 = is_wide(spelling, stored, rows, columns);
  const bool is_nvfp4 = spelling == GroupSpelling::nvfp4;
  const bool is_int8 = spelling == GroupSpelling::int8 || is_packed8;
  const bool is_turned = spelling == GroupSpelling::awq || spelling == GroupSpelling::gptq;
  if (columns % in_word != 0 || (is_turned && rows % in_word != 0)) {
    checker.refuse(
        stored, fmt::format("a matrix of [{}, {}] has no whole words of 8 codes", rows, columns));
  }
  demand_codes(checker, stored, rows, columns);
  const TensorInfo* const scales = checker.find({is_turned ? "scales" : "weight_scale"}, true);
  if (scales == nullptr || checker.check.wrong != nullptr) return std::move(checker.check);

  const Shape& shape = scales->shape;
  const bool is_column = !is_turned && shape.size() == 1;
  const std::int64_t count = is_nvfp4            ? columns / nvfp4_group
                             : is_column         ? 1
                             : shape.size() != 2 ? 0
                                                 : shape[is_turned ? 0 : 1];
  checker.demand(*scales, is_nvfp4 || !is_float(scales->dtype) ? DType::f8_e4m3 : scales->dtype,
                 is_column   ? Shape{rows}
                 : is_turned ? Shape{count, rows}
                             : Shape{rows, count});
  if (!is_nvfp4 && scales->dtype == DType::f8_e4m3) {
    checker.refuse(*scales, "scales of whole numbers are BF16, F16 or F32");
  }
  const bool fits = count > 0 && columns % count == 0 && columns / count % in_word == 0;
  if (!fits || (is_nvfp4 && columns / count != nvfp4_group)) {
    checker.refuse(
        *scales, fmt::format("its {} groups do not divide {} columns into eights", count, columns));
  }
  if (checker.check.wrong != nullptr) return std::move(checker.check);
  groups.scales = scales->name;
  groups.group = columns / count;

  checker.find({"weight_shape"}, false);  // what the shape of the codes says
  if (const TensorInfo* order = checker.find({"g_idx", "weight_g_idx"}, false)) {
    groups.order = order->name;
    checker.demand(*order, DType::i32, {columns});
  }
  if (is_nvfp4) {
    demand_unit(checker, checker.find({"weight_scale_2", "weight_global_scale"}, true), 1);
  } else if (const TensorInfo* zeros =
                 checker.find({is_turned ? "qzeros" : "weight_zero_point"}, is_turned)) {
    groups.zeros = zeros->name;
    if (is_packed8) checker.refuse(*zeros, "zero points of 8 packed bits are not read");
    checker.demand(*zeros, is_int8 ? DType::i8 : DType::i32,
                   is_int8     ? shape
                   : is_turned ? Shape{count, rows / in_word}
                               : Shape{(rows + in_word - 1) / in_word, count});
  }
  constexpr std::int64_t group_max = 1024;
  groups.codes = {.levels = is_nvfp4  ? GgufType::mxfp4
                            : is_int8 ? GgufType::q8_0
                                      : GgufType::q4_0,
                  .scales = scales->dtype,
                  .has_zeros = !groups.zeros.empty(),
                  .group = count == 1 ? group_max : std::gcd(group_max, groups.group)};
  return std::move(checker.check);
}

GroupCheck check_stacked_groups(const TensorInfo& stored, const Shape& shape, bool transposed,
                                const TensorFiles& files) {
  GroupChecker checker(GroupSpelling::nvfp4, stored, files, stored.name + "_");
  const auto cut = [&](std::int64_t by) {
    Shape smaller = shape;
    smaller[transposed ? 1 : 2] /= by;
    return smaller;
  };
  const std::int64_t columns = shape[transposed ? 1 : 2];
  if (columns % nvfp4_group != 0) {
    checker.refuse(stored, fmt::format("{} columns are no groups of {}", columns, nvfp4_group));
  }
  checker.demand(stored, DType::u8, cut(2));
  if (const TensorInfo* const scales = checker.find({"weight_scale"}, true)) {
    checker.demand(*scales, DType::f8_e4m3, cut(nvfp4_group));
    checker.check.groups.scales = scales->name;
  }
  demand_unit(checker, checker.find({"weight_scale_2"}, true), shape[0]);
  checker.check.groups.group = nvfp4_group;
  checker.check.groups.codes = nvfp4_codes;
  return std::move(checker.check);
}

GroupCheck check_nvfp4_blocks(const TensorInfo& stored, const Shape& shape,
                              const TensorFiles& files) {
  const std::string_view name = stored.name;
  const std::size_t end = name.ends_with(weight_end) ? weight_end.size() - 1 : 0;
  GroupChecker checker(GroupSpelling::nvfp4, stored, files,
                       std::string(name.substr(0, name.size() - end)));
  demand_unit(checker, checker.find({"scale"}, false), shape.size() == 3 ? shape[0] : 1);
  checker.check.groups.group = nvfp4_group;
  checker.check.groups.codes = nvfp4_codes;
  return std::move(checker.check);
}

kernels::WeightSource read_stacked_groups(const PublishedGroups& groups, const std::string& codes,
                                          std::int64_t experts, std::int64_t rows,
                                          std::int64_t columns, bool transposed,
                                          const TensorFiles& files, std::vector<std::byte>& made) {
  const TensorView stored = files.view(codes);
  const bool has_blocks = groups.scales.empty();
  const TensorView scales = has_blocks ? stored : files.view(groups.scales);
  const std::int64_t code_bytes = rows * columns / 2, scale_bytes = rows * columns / nvfp4_group;
  if (!has_blocks) check_scales(groups.scales, scales);
  std::span<const std::byte> all_codes = stored.bytes, all_scales = scales.bytes;
  if (has_blocks || transposed) {
    made.resize(static_cast<std::size_t>(experts * (code_bytes + scale_bytes)));
    const auto [own_codes, own_scales] =
        std::pair(std::span(made).first(static_cast<std::size_t>(experts * code_bytes)),
                  std::span(made).last(static_cast<std::size_t>(experts * scale_bytes)));
    if (has_blocks) split_blocks(stored.bytes, own_codes.data(), own_scales.data());
    for (std::int64_t e = 0; e < experts && !has_blocks; ++e) {
      turn_bytes(stored.bytes.data() + e * code_bytes, columns / 2, rows,
                 own_codes.data() + e * code_bytes);
      turn_bytes(scales.bytes.data() + e * scale_bytes, columns / nvfp4_group, rows,
                 own_scales.data() + e * scale_bytes);
    }
    all_codes = own_codes;
    all_scales = own_scales;
  }
  kernels::WeightSource source(experts, rows, columns);
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto of_expert = [e](std::span<const std::byte> all, std::int64_t bytes) {
      return all.subspan(static_cast<std::size_t>(e * bytes), static_cast<std::size_t>(bytes));
    };
    source.append(DType::u8, rows, of_expert(all_codes, code_bytes),
                  {.dtype = DType::f8_e4m3,
                   .bytes = of_expert(all_scales, scale_bytes),
                   .row_block = 1,
                   .column_block = nvfp4_group,
                   .unit = unit_of(groups, files, e)});
  }
  return source;
}

kernels::WeightSource read_groups(const PublishedGroups& groups, const std::string& codes,
                                  std::int64_t rows, std::int64_t columns, const TensorFiles& files,
                                  std::vector<std::byte>& made) {
  const TensorView stored = files.view(codes), scales = files.view(groups.scales);
  check_scales(groups.scales, scales);
  const bool is_int8 = groups.codes.levels == GgufType::q8_0;
  const bool is_turned =
      groups.spelling == GroupSpelling::awq || groups.spelling == GroupSpelling::gptq;
  const std::int64_t count = columns / groups.group;
  const auto size = static_cast<std::int64_t>(size_of(scales.dtype));
  kernels::WeightScales published = {.dtype = scales.dtype,
                                     .bytes = scales.bytes,
                                     .row_block = 1,
                                     .column_block = groups.group,
                                     .unit = unit_of(groups, files)};
  std::span<const std::byte> numbers = stored.bytes;

  const bool makes_zeros = !groups.zeros.empty() && !is_int8;
  const std::int64_t turned_bytes = is_turned ? rows * columns / 2 : 0;
  const std::int64_t scale_bytes = is_turned ? rows * count * size : 0;
  const bool turns_sign = is_int8 && groups.spelling == GroupSpelling::packed;
  const std::size_t order_bytes =
      is_reordered(groups, columns, files) ? files.view(groups.order).bytes.size() : 0;
  made.resize(order_bytes + static_cast<std::size_t>(turned_bytes + scale_bytes +
                                                     (makes_zeros  ? rows * count
                                                      : turns_sign ? rows * columns
                                                                   : 0)));
  if (order_bytes > 0) {
    std::ranges::copy(files.view(groups.order).bytes, made.begin());
    published.group_of = {reinterpret_cast<const std::int32_t*>(made.data()),
                          static_cast<std::size_t>(columns)};
  }
  const std::span<std::byte> room = std::span(made).subspan(order_bytes);
  if (is_turned) {
    turn_codes(groups.spelling, stored.bytes.data(), rows, columns, room.data());
    std::byte* const turned = room.data() + turned_bytes;
    for (std::int64_t i = 0; i < rows * count; ++i) {
      std::memcpy(turned + i * size, scales.bytes.data() + (i % count * rows + i / count) * size,
                  static_cast<std::size_t>(size));
    }
    numbers = room.first(static_cast<std::size_t>(turned_bytes));
    published.bytes =
        room.subspan(static_cast<std::size_t>(turned_bytes), static_cast<std::size_t>(scale_bytes));
  }
  if (turns_sign) {  // its codes count from -128
    std::ranges::transform(stored.bytes, room.begin(),
                           [](std::byte code) { return code ^ std::byte{0x80}; });
    numbers = room;
  }
  if (makes_zeros) {
    const auto zeros = room.last(static_cast<std::size_t>(rows * count));
    read_zeros(groups, files.view(groups.zeros).bytes.data(), rows, count, zeros.data());
    const auto is_8 = [](std::byte zero) { return zero == std::byte{}; };
    if (!std::ranges::all_of(zeros, is_8)) published.zeros = zeros;
  } else if (is_int8 && !groups.zeros.empty()) {
    published.zeros = files.view(groups.zeros).bytes;
  }
  kernels::WeightSource source(1, rows, columns);
  source.append(is_int8 ? DType::i8 : DType::u8, rows, numbers, published);
  return source;
}

}  // namespace hyb::models
