#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/activation.h"
#include "kernels/floats.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"

namespace hyb::kernels::testing {

/// The layout of a test tensor: every row followed by `row_padding` elements that must not be
/// touched, all of it moved by `offset` elements off the alignment of vectors.
struct Strides {
  std::int64_t row_padding = 0;
  std::int64_t offset = 0;
};

/// Owns the bytes of a tensor between guard words. Elements start as zeros, all else as a pattern.
class TestTensor {
 public:
  TestTensor() = default;
  TestTensor(DType dtype, std::initializer_list<std::int64_t> dims, Strides strides = {})
      : view_(nullptr, dtype, dims), element_(size_of(dtype)) {
    row_ = view_.row_stride;
    view_.row_stride += strides.row_padding;
    begin_ = guard_bytes + static_cast<std::size_t>(strides.offset) * element_;
    const auto body = static_cast<std::size_t>(view_.dim(0) * view_.row_stride) * element_;
    bytes_.assign(begin_ + body + guard_bytes, pattern);
    for (std::int64_t i = 0; i < view_.dim(0); ++i) std::memset(row_data(i), 0, row_bytes());
  }

  Tensor view() const {
    Tensor view = view_;
    if (!bytes_.empty()) view.data = const_cast<std::byte*>(bytes_.data() + begin_);
    return view;
  }
  operator Tensor() const { return view(); }  // NOLINT: ops are called with these

  std::int64_t size() const { return view_.size(); }

  float get(std::int64_t i) const {
    const std::byte* const at = element(i);
    if (view_.dtype == DType::bf16) return to_float(read<bf16>(at));
    if (view_.dtype == DType::f16) return to_float(read<f16>(at));
    if (view_.dtype == DType::f8_e4m3) return to_float(read<e4m3>(at));
    if (view_.dtype == DType::i32) return static_cast<float>(read<std::int32_t>(at));
    return read<float>(at);
  }
  void set(std::int64_t i, float value) {
    std::byte* const at = const_cast<std::byte*>(element(i));
    if (view_.dtype == DType::bf16) {
      const bf16 rounded = to_bf16(value);
      std::memcpy(at, &rounded, sizeof(rounded));
    } else if (view_.dtype == DType::f16) {
      const f16 rounded = to_f16(value);
      std::memcpy(at, &rounded, sizeof(rounded));
    } else if (view_.dtype == DType::f8_e4m3) {
      const e4m3 rounded = to_e4m3(value);
      std::memcpy(at, &rounded, sizeof(rounded));
    } else {
      std::memcpy(at, &value, sizeof(value));
    }
  }

  std::vector<float> values() const {
    std::vector<float> all(static_cast<std::size_t>(size()));
    for (std::int64_t i = 0; i < size(); ++i) all[static_cast<std::size_t>(i)] = get(i);
    return all;
  }

  /// The elements' bytes without padding and guards.
  std::vector<std::byte> packed() const {
    std::vector<std::byte> all;
    for (std::int64_t i = 0; i < view_.dim(0); ++i) {
      all.insert(all.end(), row_data(i), row_data(i) + row_bytes());
    }
    return all;
  }

  /// Every byte, guards and padding too: equal before and after where nothing was written.
  const std::vector<std::byte>& everything() const { return bytes_; }

  /// No byte outside of the elements was written.
  bool guards_intact() const {
    std::vector<bool> inside(bytes_.size());
    for (std::int64_t i = 0; i < view_.dim(0); ++i) {
      const auto first = static_cast<std::size_t>(row_data(i) - bytes_.data());
      std::fill_n(inside.begin() + static_cast<std::ptrdiff_t>(first), row_bytes(), true);
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (!inside[i] && bytes_[i] != pattern) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr std::byte pattern{0xfd};  // as f32 or bf16 huge: a read shows in the answer

  template <typename T>
  static T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(row_) * element_; }
  std::byte* row_data(std::int64_t i) const {
    return const_cast<std::byte*>(bytes_.data()) + begin_ +
           static_cast<std::size_t>(i * view_.row_stride) * element_;
  }
  const std::byte* element(std::int64_t i) const {
    return row_data(i / row_) + static_cast<std::size_t>(i % row_) * element_;
  }

  Tensor view_;
  std::size_t element_ = 4, begin_ = 0;
  std::int64_t row_ = 0;
  std::vector<std::byte> bytes_;
};

/// Normally distributed values, the same for the same seed.
inline void fill_random(TestTensor& tensor, std::uint32_t seed, float deviation = 1.0F,
                        float mean = 0.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(mean, deviation);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, normal(engine));
}

inline TestTensor random_tensor(DType dtype, std::initializer_list<std::int64_t> dims,
                                std::uint32_t seed, float deviation = 1.0F, Strides strides = {}) {
  TestTensor tensor(dtype, dims, strides);
  fill_random(tensor, seed, deviation);
  return tensor;
}

/// Of decays: below 0, some of them near it.
inline TestTensor random_rates(std::int64_t heads, std::uint32_t seed) {
  TestTensor rates = random_tensor(DType::f32, {heads}, seed);
  for (std::int64_t i = 0; i < heads; ++i) rates.set(i, -std::exp(rates.get(i)));
  return rates;
}

/// A copy of the same shape and strides in another type.
inline TestTensor converted(const TestTensor& source, DType dtype,
                            std::initializer_list<std::int64_t> dims, Strides strides = {}) {
  TestTensor copy(dtype, dims, strides);
  for (std::int64_t i = 0; i < source.size(); ++i) copy.set(i, source.get(i));
  return copy;
}

/// An i32 table that lives as long as this object.
class Table {
 public:
  Table(std::initializer_list<std::int32_t> values) : values_(values) {}
  explicit Table(std::vector<std::int32_t> values) : values_(std::move(values)) {}
  operator Tensor() const {  // NOLINT: ops are called with these
    return {const_cast<std::int32_t*>(values_.data()),
            DType::i32,
            {static_cast<std::int64_t>(values_.size())}};
  }
  const std::vector<std::int32_t>& values() const { return values_; }

 private:
  std::vector<std::int32_t> values_;
};

/// Every level that this machine can run, the plain loops first.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> levels;
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    if (isa <= best_isa()) levels.push_back(isa);
  }
  return levels;
}

inline std::string name_of(Isa isa) {
  return isa == Isa::plain ? "plain" : isa == Isa::avx2 ? "avx2" : "avx512";
}

inline Queue test_queue(Isa isa, int threads = 1) {
  return Queue(Device::cpu, {.threads = threads, .isa = isa});
}

/// Cuts `tokens` into pieces of random lengths, short ones often: the begins, then `tokens`.
inline std::vector<std::int32_t> random_cuts(std::int32_t tokens, std::mt19937& engine) {
  std::vector<std::int32_t> begins{0};
  while (begins.back() < tokens) {
    const std::int32_t left = tokens - begins.back();
    const std::int32_t longest = engine() % 2 == 0 ? std::min(left, 3) : left;
    begins.push_back(begins.back() + 1 +
                     static_cast<std::int32_t>(engine() % static_cast<unsigned>(longest)));
  }
  return begins;
}

/// How far `actual` is from `expected`, in bf16 or f32 terms: |a-e| / (|e| + scale), the largest.
inline double largest_error(const TestTensor& actual, const TestTensor& expected,
                            double scale = 1.0) {
  double largest = 0;
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const double a = actual.get(i), e = expected.get(i);
    const double error = std::fabs(a - e) / (std::fabs(e) + scale);
    if (!(error <= largest)) largest = std::isnan(error) ? INFINITY : error;
  }
  return largest;
}

/// Frequencies of a rope: the powers of theta for the pairs of rotary_dim numbers. They stay.
inline std::span<const double> rope_frequencies(std::int64_t rotary_dim, double theta = 10000.0) {
  static std::map<std::pair<std::int64_t, double>, std::vector<double>> all;
  std::vector<double>& found = all[{rotary_dim, theta}];
  while (2 * std::ssize(found) < rotary_dim) {
    const auto pair = static_cast<double>(found.size());
    found.push_back(std::pow(theta, -2.0 * pair / static_cast<double>(rotary_dim)));
  }
  return found;
}

inline constexpr Activation gated_silu = {ActivationFunction::silu, true};
inline constexpr Activation plain_silu = {ActivationFunction::silu, false};
inline constexpr Activation gated_relu2 = {ActivationFunction::relu2, true};
inline constexpr Activation plain_relu2 = {ActivationFunction::relu2, false};
inline constexpr Activation gated_gelu = {ActivationFunction::gelu_tanh, true};
inline constexpr Activation plain_gelu = {ActivationFunction::gelu_tanh, false};
inline constexpr Activation gated_exact_gelu = {ActivationFunction::gelu, true};
inline constexpr Activation plain_exact_gelu = {ActivationFunction::gelu, false};
inline constexpr Activation clamped_swiglu = {ActivationFunction::clamped_swiglu, true, 1.5F, 2.5F};
inline constexpr Activation limited_silu = {ActivationFunction::limited_silu, true, 0.0F, 1.25F};
inline constexpr Activation all_activations[] = {
    gated_silu, plain_silu,     gated_relu2,  plain_relu2,      gated_gelu,
    plain_gelu, clamped_swiglu, limited_silu, gated_exact_gelu, plain_exact_gelu};

/// What no route has: every op refuses it.
inline constexpr Activation unknown_activation = {static_cast<ActivationFunction>(99), false};
inline constexpr const char* unknown_activation_rule = "the activation's function exists, got 99";

/// f(value) as an op that computes in f64 would have it, times the factor where gated.
inline double activated(const Activation& activation, double value, double up) {
  const double limit = activation.limit;
  const double factor = activation.gated ? up : 1.0;
  switch (activation.function) {
    case ActivationFunction::silu:
      break;
    case ActivationFunction::relu2:
      return factor * (value > 0 ? value * value : 0.0);
    case ActivationFunction::gelu_tanh:
      return factor * value /
             (1 + std::exp(-1.5957691216057308 * value * (1 + 0.044715 * value * value)));
    case ActivationFunction::gelu:
      return factor * value * 0.5 * std::erfc(-value * std::sqrt(0.5));
    case ActivationFunction::limited_silu:
      return std::clamp(up, -limit, limit) * std::min(value / (1 + std::exp(-value)), limit);
    case ActivationFunction::clamped_swiglu:
      value = std::min(value, limit);
      return (std::clamp(up, -limit, limit) + 1) * value /
             (1 + std::exp(-activation.alpha * value));
  }
  return factor * value / (1 + std::exp(-value));
}

/// What a route may be off by in any case: gelu is made of a polynomial.
inline double activation_slack(const Activation& activation, double value, double up) {
  if (activation.function != ActivationFunction::gelu) return 0;
  return 0x1p-22 * std::fabs(value * (activation.gated ? up : 1.0));
}

inline bool same_bytes(const TestTensor& a, const TestTensor& b) {
  return a.packed() == b.packed();
}

}  // namespace hyb::kernels::testing
