#include "kernels/weight.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/linear/bits12.h"
#include "kernels/linear/bits12_rows.h"
#include "kernels/linear/gguf_rows.h"
#include "kernels/linear/pack.h"
#include "kernels/linear/quantize.h"
#include "kernels/linear/random_rows.h"
#include "kernels/linear/upload.h"
#include "kernels/transfer.h"

namespace hyb::kernels {
namespace {

/// Returns what packing makes of the source.
WeightCode code_of(Device device, const WeightSource& source, DType dtype, Quantize quantize) {
  if (dtype != DType::bf16) return WeightCode::plain;
  if (source.is_all(DType::u8)) return WeightCode::mxfp4;
  if (const GgufBlock* const block = source.block()) {
    if (block->type == GgufType::mxfp4) return WeightCode::mxfp4;
    if (device == Device::cpu) {
      return gguf_code_bits(block->type) > 0 ? WeightCode::blocks : WeightCode::plain;
    }
    if (card_keeps(block->type)) return WeightCode::blocks;
  }
  const bool has_groups =
      device == Device::cpu ? source.groups().has_value() : card_keeps_groups(source);
  if (has_groups && source.groups_alike()) return WeightCode::groups;
  if (quantize == Quantize::q4) return WeightCode::q4;
  if (source.is_all(DType::f8_e4m3)) return WeightCode::fp8;
  if (quantize == Quantize::bits12) return WeightCode::bits12;
  return quantize == Quantize::q8 ? WeightCode::q8 : WeightCode::plain;
}

/// Returns the blocks that may make rows a part of their own: their blocks, but on a card those
/// that it keeps alone.
const GgufBlock* part_blocks(Device device, const WeightStrip& strip) {
  const GgufBlock* const block = strip.block;
  if (block == nullptr || device == Device::cpu) return block;
  return card_keeps(block->type) || block->type == GgufType::mxfp4 ? block : nullptr;
}

/// Says whether rows can be of one part.
bool are_of_a_part(Device device, const WeightStrip& a, const WeightStrip& b) {
  return part_blocks(device, a) == part_blocks(device, b) &&
         std::ranges::equal(a.scales.group_of, b.scales.group_of);
}

/// Says whether rows of one matrix are in blocks of several types, or have their columns in groups
/// in several orders, in few enough runs.
bool has_parts(Device device, const WeightSource& source, DType dtype) {
  constexpr int parts_max = 8;
  if (dtype != DType::bf16 || source.experts != 1) return false;
  const bool has_orders = std::ranges::any_of(
      source.strips, [](const WeightStrip& strip) { return !strip.scales.group_of.empty(); });
  if (device == Device::cuda && has_orders && !card_keeps_groups(source)) return false;
  int parts = 1;
  for (std::size_t i = 1; i < source.strips.size(); ++i) {
    parts += are_of_a_part(device, source.strips[i - 1], source.strips[i]) ? 0 : 1;
  }
  return parts > 1 && parts <= parts_max;
}

}  // namespace

Weight::Weight(WeightCode code, DType dtype, const WeightSource& source)
    : code_(code),
      dtype_(dtype),
      experts_(source.experts),
      rows_(source.rows),
      columns_(source.columns) {}

Weight Weight::view(const WeightSource& source) {
  source.check();
  require(source.strips.size() == 1 && source.strips.front().scales.bytes.empty() &&
              source.strips.front().row_step == 1 && source.strips.front().column_step == 0 &&
              !source.is_random(),
          "weight: a view is of one tensor without scales");
  Weight weight;
  weight.format_ = WeightFormat::rows;
  weight.dtype_ = source.strips.front().dtype;
  weight.experts_ = source.experts;
  weight.rows_ = source.rows;
  weight.columns_ = source.columns;
  weight.view_ = source.strips.front().bytes;
  return weight;
}

Weight Weight::pack(Queue& queue, const WeightSource& source, DType dtype, Quantize quantize) {
  require(dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f16,
          "weight: panels are BF16, F32 or F16");
  require(dtype == DType::bf16 || quantize == Quantize::none, "weight: codes are for BF16");
  source.check();
  if (has_parts(queue.device(), source, dtype)) return pack_parts(queue, source, dtype, quantize);
  const WeightCode code = code_of(queue.device(), source, dtype, quantize);
  const bool is_on_card = queue.device() == Device::cuda;
  if (is_on_card && card_makes(source, code, dtype)) {
    const bool fits = code != WeightCode::bits12 || bits12_rows_take({source.rows, source.columns});
    Weight made = reserve(fits ? code : WeightCode::plain, dtype, source.experts, source.rows,
                          source.columns);
    fill_rows(queue, source, made.code_, dtype, made.owned_.data());
    return made;
  }
  Weight weight(code, dtype, source);
  if (code == WeightCode::blocks) weight.type_ = source.block()->type;
  if (code == WeightCode::groups) {
    weight.groups_ = *source.groups();
    weight.type_ = weight.groups_.levels;
    weight.group_ = weight.groups_.group;
  }
  if (weight.code_ == WeightCode::bits12) {
    if (weight.pack_bits12(queue, source)) return weight;
    weight.code_ = WeightCode::plain;
  }
  if (weight.code_ != WeightCode::plain) {
    weight.pack_codes(queue, source);
    return weight;
  }
  if (is_on_card) {
    weight = reserve(WeightCode::plain, dtype, source.experts, source.rows, source.columns);
    upload_rows(queue, source, dtype, weight.owned_.data());
    return weight;
  }
  const PanelShape shape = panel_shape(dtype, source.rows, source.columns);
  weight.format_ = WeightFormat::panels;
  weight.owned_ =
      Buffer(queue.device(), static_cast<std::size_t>(source.experts * shape.expert_bytes()));
  pack_panels(queue, source, dtype, weight.owned_.data());
  return weight;
}

Weight Weight::pack_parts(Queue& queue, const WeightSource& source, DType dtype,
                          Quantize quantize) {
  Weight weight(WeightCode::blocks, dtype, source);
  weight.format_ = queue.device() == Device::cpu ? WeightFormat::panels : WeightFormat::rows;
  for (auto begin = source.strips.begin(); begin != source.strips.end();) {
    const auto end = std::find_if(begin, source.strips.end(), [&](const WeightStrip& strip) {
      return !are_of_a_part(queue.device(), *begin, strip);
    });
    const std::int64_t rows = (end - 1)->first + (end - 1)->rows - begin->first;
    WeightSource part(1, rows, source.columns);
    part.append(source, begin->first, rows);
    weight.parts_.push_back(pack(queue, part, dtype, quantize));
    begin = end;
  }
  return weight;
}

std::size_t Weight::owned_bytes() const {
  std::size_t bytes = owned_.bytes() + patches_.bytes() + order_.bytes();
  for (const Weight& part : parts_) bytes += part.owned_bytes();
  return bytes;
}

Weight Weight::reserve(WeightCode code, DType dtype, std::int64_t experts, std::int64_t rows,
                       std::int64_t columns) {
  Weight weight;
  weight.code_ = code;
  weight.dtype_ = dtype;
  weight.experts_ = experts;
  weight.rows_ = rows;
  weight.columns_ = columns;
  std::int64_t expert_bytes = 0;
  if (code == WeightCode::plain) {
    expert_bytes = rows * columns * static_cast<std::int64_t>(size_of(dtype));
  } else if (code == WeightCode::bits12) {
    expert_bytes = Bits12RowsShape{rows, columns}.expert_bytes();
  } else {
    weight.group_ = code == WeightCode::fp8 ? CodedRowsShape::chunk_columns : quantize_group;
    expert_bytes = CodedRowsShape{code, rows, columns}.expert_bytes();
  }
  weight.owned_ = Buffer(Device::cuda, static_cast<std::size_t>(experts * expert_bytes));
  weight.view_ = weight.owned_.data();
  return weight;
}

void Weight::pack_codes(Queue& queue, const WeightSource& source) {
  if (code_ == WeightCode::blocks) group_ = gguf_group(type_);
  const bool has_rows = code_ == WeightCode::blocks || code_ == WeightCode::groups;
  std::vector<std::int32_t> order;
  if (code_ == WeightCode::groups) order = source.columns_by_group();
  if (!order.empty()) {
    const auto bytes = std::as_bytes(std::span(order));
    order_ = Buffer(queue.device(), bytes.size());
    upload(queue, order_.data(), bytes);
  }
  if (queue.device() == Device::cuda && has_rows) {
    const GgufRowsShape shape = gguf_rows_shape(*this);
    owned_ = Buffer(Device::cuda, static_cast<std::size_t>(experts_ * shape.expert_bytes()));
    view_ = owned_.data();
    upload_blocks(queue, source, shape, owned_.data(), order);
    return;
  }
  if (queue.device() == Device::cuda) {
    group_ = code_ == WeightCode::fp8 ? CodedRowsShape::chunk_columns : group_of(code_, source);
    const CodedRowsShape shape = {code_, rows_, columns_};
    owned_ = Buffer(Device::cuda, static_cast<std::size_t>(experts_ * shape.expert_bytes()));
    view_ = owned_.data();
    upload_codes(queue, source, shape, owned_.data());
    return;
  }
  if (!has_rows) group_ = group_of(code_, source);
  format_ = WeightFormat::panels;
  const CodedShape shape = coded_shape(*this);
  owned_ = Buffer(queue.device(), static_cast<std::size_t>(experts_ * shape.expert_bytes()));
  pack_coded_panels(queue, source, shape, owned_.data(), order);
}

bool Weight::pack_bits12(Queue& queue, const WeightSource& source) {
  if (queue.device() == Device::cuda) {
    if (!bits12_rows_take({rows_, columns_})) return false;
    const Bits12Rows packed = pack_bits12_rows(queue, source);
    if (!bits12_rows_pay(packed.patched, experts_ * rows_ * columns_)) return false;
    const auto patches = std::as_bytes(std::span(packed.patches));
    owned_ = Buffer(Device::cuda, packed.experts.size() + patches.size());
    view_ = owned_.data();
    upload_bytes(queue, packed.experts, owned_.data());
    upload_bytes(queue, patches, owned_.data() + packed.experts.size());
    return true;
  }
  const Bits12Shape shape = bits12_shape(rows_, columns_);
  Buffer panels(queue.device(), static_cast<std::size_t>(experts_ * shape.expert_bytes()));
  Buffer patches = pack_bits12_panels(queue, source, panels.data());
  if (!bits12_pays(shape, experts_, patches.bytes())) return false;
  format_ = WeightFormat::panels;
  owned_ = std::move(panels);
  patches_ = std::move(patches);
  return true;
}

std::int64_t Weight::patch_count() const {
  return static_cast<std::int64_t>(patches_.bytes() / sizeof(Bits12Patch));
}

const std::byte* Weight::expert(std::int64_t e) const {
  require(e >= 0 && e < experts_, "weight: expert lies in 0..experts-1");
  require(parts_.empty(), "weight: of several parts each has its own bytes");
  if (format_ == WeightFormat::rows && code_ == WeightCode::bits12) {
    return view_ + e * Bits12RowsShape{rows_, columns_}.expert_bytes();
  }
  const bool has_rows = code_ == WeightCode::blocks || code_ == WeightCode::groups;
  if (format_ == WeightFormat::rows && has_rows) {
    return view_ + e * gguf_rows_shape(*this).expert_bytes();
  }
  if (format_ == WeightFormat::rows && code_ != WeightCode::plain) {
    return view_ + e * CodedRowsShape{code_, rows_, columns_}.expert_bytes();
  }
  if (format_ == WeightFormat::rows) {
    return view_ + e * rows_ * columns_ * static_cast<std::int64_t>(size_of(dtype_));
  }
  if (code_ == WeightCode::bits12) {
    return owned_.data() + e * bits12_shape(rows_, columns_).expert_bytes();
  }
  if (code_ != WeightCode::plain) return owned_.data() + e * coded_shape(*this).expert_bytes();
  return owned_.data() + e * panel_shape(dtype_, rows_, columns_).expert_bytes();
}

void Weight::read_row(std::int64_t e, std::int64_t n, std::span<float> out) const {
  require(n >= 0 && n < rows_, "weight: row lies in 0..rows-1");
  require(std::ssize(out) == columns_, "weight: a row is `columns` floats");
  for (const Weight& part : parts_) {
    if (n < part.rows()) return part.read_row(e, n, out);
    n -= part.rows();
  }
  const std::byte* const matrix = expert(e);
  if (format_ == WeightFormat::rows) {
    for (std::int64_t k = 0; k < columns_; ++k) {
      out[static_cast<std::size_t>(k)] = published_value(matrix, dtype_, n * columns_ + k);
    }
    return;
  }
  if (code_ == WeightCode::bits12) {
    const std::int64_t panel_bytes = bits12_shape(rows_, columns_).panel_bytes();
    return read_bits12_row(matrix + n / panel_rows * panel_bytes, patches(), n % panel_rows, out);
  }
  if (code_ != WeightCode::plain) {
    const CodedShape shape = coded_shape(*this);
    read_coded_row(shape, matrix + n / panel_rows * shape.panel_bytes(), n % panel_rows,
                   out.data());
    if (order(e).empty()) return;
    const std::vector<float> by_group(out.begin(), out.end());
    for (std::size_t k = 0; k < by_group.size(); ++k) {
      out[static_cast<std::size_t>(order(e)[k])] = by_group[k];
    }
    return;
  }
  const PanelShape shape = panel_shape(dtype_, rows_, columns_);
  const std::byte* const first =
      matrix + n / panel_rows * shape.panel_bytes() + n % panel_rows * shape.run_bytes();
  for (std::int64_t k = 0; k < columns_; ++k) {
    const std::byte* const run = first + k / shape.run * shape.run_stride();
    out[static_cast<std::size_t>(k)] = published_value(run, dtype_, k % shape.run);
  }
}

}  // namespace hyb::kernels
