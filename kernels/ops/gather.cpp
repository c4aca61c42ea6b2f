#include "kernels/ops/gather.h"

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/routes.h"
#include "kernels/linear/pack.h"
#include "kernels/ops/check.h"
#include "kernels/visit.h"
#include "kernels/weight_source.h"

namespace hyb::kernels {
namespace {

void check(const Embed& op, Device device) {
  const Check check("embed", device);
  check.that(op.weight != nullptr && op.weight->rows() > 0, "weight is there", 0);
  check.that(op.weight->experts() == 1, "weight is one matrix", op.weight->experts());
  check.table(op.tokens, "tokens", op.tokens.dim(0));
  check.activations(op.y, "y");
  check.tensor(op.y, "y", op.y.dtype, {op.tokens.dim(0), op.weight->columns()});
  if (!check.reads_tables()) return;
  for (std::int64_t t = 0; t < op.tokens.dim(0); ++t) {
    const std::int32_t token = op.tokens.as<std::int32_t>()[t];
    check.that(token >= 0 && token < op.weight->rows(), "token is a row of the weight", token);
  }
}

/// Element k of a row is at `first + k / per_run * run_bytes`, runs being what lies together.
struct Row {
  const std::byte* first;
  std::int64_t per_run;
  std::int64_t run_bytes;
};

Row row_of(const Weight& weight, std::int64_t n) {
  const auto value_bytes = static_cast<std::int64_t>(size_of(weight.dtype()));
  const std::byte* const matrix = weight.expert(0);
  if (weight.format() == WeightFormat::rows) {
    return {matrix + n * weight.columns() * value_bytes, weight.columns(), 0};
  }
  const PanelShape shape = panel_shape(weight.dtype(), weight.rows(), weight.columns());
  return {matrix + n / Weight::panel_rows * shape.panel_bytes() +
              n % Weight::panel_rows * shape.run_bytes(),
          shape.run, shape.run_stride()};
}

/// A row of a weight with codes.
template <typename T>
void read_row(const Weight& weight, std::int64_t n, float scale, T* y) {
  std::vector<float> values(static_cast<std::size_t>(weight.columns()));
  weight.read_row(0, n, values);
  for (std::size_t k = 0; k < values.size(); ++k) y[k] = from_float<T>(values[k] * scale);
}

template <typename T>
void copy_row(const Row& row, DType dtype, std::int64_t columns, float scale, T* y) {
  for (std::int64_t k = 0; k < columns; k += row.per_run) {
    const std::byte* const run = row.first + k / row.per_run * row.run_bytes;
    for (std::int64_t i = 0; i < row.per_run && k + i < columns; ++i) {
      y[k + i] = from_float<T>(published_value(run, dtype, i) * scale);
    }
  }
}

}  // namespace

void embed(Queue& queue, const Embed& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::embed(stream, op); })) return;
  const Weight& weight = *op.weight;
  share(queue, op.tokens.dim(0), 1, weight.columns(), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.y.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int32_t token = op.tokens.as<std::int32_t>()[t];
        if (weight.code() != WeightCode::plain) {
          read_row<T>(weight, token, op.scale, op.y.row<T>(t));
          continue;
        }
        const Row row = row_of(weight, token);
        copy_row<T>(row, weight.dtype(), weight.columns(), op.scale, op.y.row<T>(t));
      }
    });
  });
}

namespace {

void check(const GatherRows& op, Device device) {
  const Check check("gather_rows", device);
  check.activations(op.x, "x");
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.table(op.rows, "rows", op.rows.dim(0));
  check.tensor(op.y, "y", op.x.dtype, {op.rows.dim(0), op.x.dim(1)});
  if (!check.reads_tables()) return;
  for (std::int64_t i = 0; i < op.rows.dim(0); ++i) {
    const std::int32_t row = op.rows.as<std::int32_t>()[i];
    check.that(row >= 0 && row < op.x.dim(0), "rows are within x", row);
  }
}

}  // namespace

void gather_rows(Queue& queue, const GatherRows& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::gather_rows(stream, op); })) return;
  const std::size_t row_bytes = static_cast<std::size_t>(op.x.dim(1)) * size_of(op.x.dtype);
  if (row_bytes == 0) return;
  share(queue, op.rows.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = op.rows.as<std::int32_t>()[i];
      std::memcpy(op.y.rows(i, 1).data, op.x.rows(row, 1).data, row_bytes);
    }
  });
}

namespace {

void check(const SpreadColumns& op, Device device) {
  const Check check("spread_columns", device);
  check.that(op.x.rank == 2, "x is a matrix", op.x.rank);
  check.tensor(op.x, "x", DType::f32, {op.x.dim(0), op.x.dim(1)});
  check.table(op.from, "from", op.from.dim(0));
  check.tensor(op.y, "y", DType::f32, {op.x.dim(0), op.from.dim(0)});
  if (!check.reads_tables()) return;
  for (std::int64_t c = 0; c < op.from.dim(0); ++c) {
    const std::int32_t from = op.from.as<std::int32_t>()[c];
    check.that(from < op.x.dim(1), "from is a column of x", from);
  }
}

}  // namespace

void spread_columns(Queue& queue, const SpreadColumns& op) {
  check(op, queue.device());
  if (on_card(queue, [&](auto& stream) { cuda::spread_columns(stream, op); })) return;
  const auto* const from = op.from.as<std::int32_t>();
  const std::int64_t columns = op.y.dim(1);
  share(queue, op.y.dim(0), 1, columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* const x = op.x.row<float>(t);
      float* const y = op.y.row<float>(t);
      for (std::int64_t c = 0; c < columns; ++c) {
        y[c] = from[c] < 0 ? -std::numeric_limits<float>::infinity() : x[from[c]];
      }
    }
  });
}

}  // namespace hyb::kernels
