#include "kernels/ops/altup.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/routes.h"
#include "kernels/ops/check.h"
#include "kernels/ops/row_mean.h"
#include "kernels/visit.h"

namespace hyb::kernels {
namespace {

/// Checks what both ops with a router say of streams. `rows` are those of coefs.
template <typename Op>
void check_streams(const Check& check, const Op& op, std::int64_t streams, std::int64_t rows) {
  check.activations(op.x, "x");
  check.that(op.x.rank == 2 && op.h.rank == 2, "x and h are matrices", op.x.rank);
  check.that(streams >= 2 && streams <= altup_streams_max, "2 to 8 streams", streams);
  const std::int64_t tokens = op.x.dim(0), width = op.h.dim(1);
  check.tensor(op.h, "h", op.x.dtype, {tokens, width});
  check.tensor(op.x, "x", op.x.dtype, {tokens, streams * width});
  check.tensor(op.y, "y", op.x.dtype, {tokens, streams * width});
  check.tensor(op.router, "router", DType::f32, {tokens, streams});
  check.tensor(op.coefs, "coefs", DType::f32, {rows, streams});
  check.that(op.active >= 0 && op.active < streams, "one of the streams is active", op.active);
}

using Weights = std::array<float, altup_streams_max>;

Weights weights_of(const Tensor& router, std::int64_t token) {
  Weights weights{};
  for (std::int64_t k = 0; k < router.dim(1); ++k) {
    weights[static_cast<std::size_t>(k)] = std::tanh(router.row<float>(token)[k]);
  }
  return weights;
}

float coefficient(const Tensor& coefs, std::int64_t row, const Weights& weights) {
  float sum = 0.0F;
  for (std::int64_t k = 0; k < coefs.dim(1); ++k) {
    sum += coefs.row<float>(row)[k] * weights[static_cast<std::size_t>(k)];
  }
  return sum;
}

template <typename T>
void predict_token(const AltupPredict& op, std::int64_t token) {
  const std::int64_t streams = op.router.dim(1), width = op.h.dim(1);
  const Weights weights = weights_of(op.router, token);
  const T* const x = op.x.row<T>(token);
  for (std::int64_t j = 0; j < streams; ++j) {
    T* const y = op.y.row<T>(token) + j * width;
    std::array<float, altup_streams_max> c{};
    for (std::int64_t i = 0; i < streams; ++i) {
      c[static_cast<std::size_t>(i)] = coefficient(op.coefs, j * streams + i, weights);
    }
    for (std::int64_t column = 0; column < width; ++column) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < streams; ++i) {
        sum += c[static_cast<std::size_t>(i)] * to_float(x[i * width + column]);
      }
      y[column] = from_float<T>(to_float(x[j * width + column]) + sum);
    }
    if (j == op.active) std::copy_n(y, width, op.h.row<T>(token));
  }
}

template <typename T>
void correct_token(const AltupCorrect& op, std::int64_t token) {
  const std::int64_t streams = op.router.dim(1), width = op.h.dim(1);
  const Weights weights = weights_of(op.router, token);
  std::array<float, altup_streams_max> c{};
  for (std::int64_t j = 0; j < streams; ++j) {
    c[static_cast<std::size_t>(j)] = 1.0F + coefficient(op.coefs, j, weights);
  }
  const T* const x = op.x.row<T>(token);
  T* const y = op.y.row<T>(token);
  T* const h = op.h.row<T>(token);
  for (std::int64_t column = 0; column < width; ++column) {
    const float news = to_float(h[column]) - to_float(x[op.active * width + column]);
    for (std::int64_t j = 0; j < streams; ++j) {
      const std::int64_t at = j * width + column;
      y[at] = from_float<T>(to_float(x[at]) + c[static_cast<std::size_t>(j)] * news);
    }
    const float scale = op.scale.empty() ? 1.0F : op.scale.as<float>()[column];
    h[column] = from_float<T>(to_float(y[op.active * width + column]) * scale);
  }
}

template <typename T>
void match_row(const MatchMagnitude& op, std::int64_t row) {
  const T* const like = op.like.row<T>(row);
  T* const x = op.x.row<T>(row);
  const std::int64_t width = op.x.dim(1);
  const auto square_of = [&](const T* from) {
    return mean_of(width, [&](std::int64_t i) { return to_float(from[i]) * to_float(from[i]); });
  };
  const float factor = std::sqrt(square_of(like)) / std::sqrt(std::max(square_of(x), 1e-5F));
  for (std::int64_t i = 0; i < width; ++i) x[i] = from_float<T>(to_float(x[i]) * factor);
}

template <typename T>
void add_row(const AddRows& op, std::int64_t row) {
  const T* const x = op.x.row<T>(row);
  T* const y = op.y.row<T>(row);
  for (std::int64_t i = 0; i < op.x.dim(1); ++i) {
    const T sum = from_float<T>(to_float(y[i]) + to_float(x[i]));
    y[i] = from_float<T>(to_float(sum) * op.scale);
  }
}

/// Both are matrices of one shape and type.
void check_pair(const Check& check, const Tensor& x, const Tensor& other, const char* name) {
  check.activations(x, "x");
  check.that(x.rank == 2, "x is a matrix", x.rank);
  check.tensor(other, name, x.dtype, {x.dim(0), x.dim(1)});
}

}  // namespace

void altup_predict(Queue& queue, const AltupPredict& op) {
  const std::int64_t streams = op.router.dim(1);
  check_streams(Check("altup_predict"), op, streams, streams * streams);
  if (on_card(queue, [&](auto& stream) { cuda::altup_predict(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1) * streams, [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t token = begin; token < end; ++token) predict_token<T>(op, token);
    });
  });
}

void altup_correct(Queue& queue, const AltupCorrect& op) {
  const Check check("altup_correct");
  const std::int64_t streams = op.router.dim(1);
  check_streams(check, op, streams, streams);
  if (!op.scale.empty()) check.tensor(op.scale, "scale", DType::f32, {op.h.dim(1)});
  if (on_card(queue, [&](auto& stream) { cuda::altup_correct(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t token = begin; token < end; ++token) correct_token<T>(op, token);
    });
  });
}

void match_magnitude(Queue& queue, const MatchMagnitude& op) {
  check_pair(Check("match_magnitude"), op.x, op.like, "like");
  if (on_card(queue, [&](auto& stream) { cuda::match_magnitude(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) match_row<T>(op, row);
    });
  });
}

void add_rows(Queue& queue, const AddRows& op) {
  check_pair(Check("add_rows"), op.x, op.y, "y");
  if (on_card(queue, [&](auto& stream) { cuda::add_rows(stream, op); })) return;
  share(queue, op.x.dim(0), 1, op.x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    visit_float(op.x.dtype, [&]<typename T>(Tag<T>) {
      for (std::int64_t row = begin; row < end; ++row) add_row<T>(op, row);
    });
  });
}

}  // namespace hyb::kernels
