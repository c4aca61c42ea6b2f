#pragma once

/// Include kernels/simd/avx512.h or avx2.h first: these are written on their vectors. Polynomials
/// are minimax fits made for this file; bounds are over all floats, denormal results flushed.
namespace hyb::kernels {
namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

/// Calls body(i, Full or Part) for i = 0, lanes, 2*lanes, ... below count.
template <typename Body>
[[gnu::always_inline]] inline void each_vector(std::int64_t count, Body&& body) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Full{});
  if (i < count) body(i, Part(count - i));
}

/// One element as a float and back; back is exact for what came from a T.
inline float scalar(float x) { return x; }
inline float scalar(bf16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
inline void unscalar(float value, float& x) { x = value; }
inline void unscalar(float value, bf16& x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  x.bits = static_cast<std::uint16_t>(bits >> 16);
}

/// Returns the value as it comes back from a memory of this type.
template <typename S>
[[gnu::always_inline]] inline Vec as_stored(Vec a) {
  if constexpr (sizeof(S) == 2) {
    return rounded_to_bf16(a);
  } else {
    return a;
  }
}

/// e^x within 2 ulp; 0 below -104, infinity above 88.7, NaN for NaN. Answers below 2^-126 are
/// denormal, or 0 in a thread that flushes them.
///
/// x = n ln2 + r, |r| <= ln2/2; e^r = 1 + r (1 + r q(r)); ln2 in two parts, the first exact in n.
[[gnu::always_inline]] inline Vec exp(Vec x) {
  x = smaller(broadcast(89.0F), larger(broadcast(-104.0F), x));
  const Vec n = nearest(x * broadcast(1.44269504F));
  const Vec r = fma(n, broadcast(-1.42860677e-6F), fma(n, broadcast(-0.693145752F), x));
  const Vec one = broadcast(1.0F);
  Vec q = broadcast(1.38145988e-3F);
  q = fma(q, r, broadcast(8.36871658e-3F));
  q = fma(q, r, broadcast(4.16683890e-2F));
  q = fma(q, r, broadcast(1.66665211e-1F));
  q = fma(q, r, broadcast(4.99999940e-1F));
  q = fma(q, r, one);
  return times_power_of_two(fma(q, r, one), n);
}

/// ln(1 + u) for 0 <= u <= 1 within 3 ulp: 2 atanh(s), s = u / (2 + u), as 2s + s^3 q(s^2).
[[gnu::always_inline]] inline Vec log1p_of_unit(Vec u) {
  const Vec s = u / (broadcast(2.0F) + u);
  const Vec z = s * s;
  Vec q = broadcast(2.43016779e-1F);
  q = fma(q, z, broadcast(2.14274764e-1F));
  q = fma(q, z, broadcast(2.86168993e-1F));
  q = fma(q, z, broadcast(3.99988770e-1F));
  q = fma(q, z, broadcast(6.66666746e-1F));
  return fma(q * z, s, s + s);
}

/// ln(1 + e^x) within 4 ulp, and x itself above 20.
[[gnu::always_inline]] inline Vec softplus(Vec x) {
  const Vec y = larger(zeros(), x) + log1p_of_unit(exp(zeros() - absolute(x)));
  return select(y, greater(x, broadcast(20.0F)), x);
}

/// 1 / (1 + e^-x) within 3 ulp.
[[gnu::always_inline]] inline Vec sigmoid(Vec x) {
  const Vec one = broadcast(1.0F);
  return one / (one + exp(zeros() - x));
}

/// tanh x within 3 ulp: below 5/8 x + x^3 q(x^2), above it 1 - 2 / (1 + e^2|x|) with the sign of x.
[[gnu::always_inline]] inline Vec tanh(Vec x) {
  const Vec one = broadcast(1.0F), size = absolute(x);
  const Vec far = one - broadcast(2.0F) / (one + exp(size + size));
  const Vec signed_far = select(far, greater(zeros(), x), zeros() - far);
  const Vec z = x * x;
  Vec q = broadcast(-6.10494800e-3F);
  q = fma(q, z, broadcast(2.10036412e-2F));
  q = fma(q, z, broadcast(-5.38524985e-2F));
  q = fma(q, z, broadcast(1.33327827e-1F));
  q = fma(q, z, broadcast(-3.33333284e-1F));
  return select(signed_far, greater(broadcast(0.625F), size), fma(q * z, x, x));
}

/// x / (1 + e^-x) within 4 ulp.
[[gnu::always_inline]] inline Vec silu(Vec x) { return x / (broadcast(1.0F) + exp(zeros() - x)); }

#pragma GCC diagnostic pop

}  // namespace
}  // namespace hyb::kernels
