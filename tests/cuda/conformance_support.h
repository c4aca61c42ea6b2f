#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/cuda/conformance_kernels.h"
#include "tests/cuda/support.h"

/// Words there and back, for the tests of conformance_kernels.h.
namespace hyb::kernels::testing {

using U32 = std::uint32_t;
using Array = std::vector<U32>;
using Run = std::function<void(cuda::Stream&, const Words&)>;

template <typename Container>
auto& at(Container& words, int i) {
  return words[static_cast<std::size_t>(i)];
}
inline float as_float(U32 bits) { return std::bit_cast<float>(bits); }
inline U32 as_bits(float value) { return std::bit_cast<U32>(value); }

/// What `run` makes of `out`. Nothing is written behind it, nor to what is read.
inline Array answer_of(const Run& run, const Array& in, Array out) {
  constexpr U32 guard = 0xdeadbeef;
  constexpr std::size_t guard_words = 64;
  const std::size_t count = out.size();
  out.resize(count + guard_words, guard);
  const DeviceTable on_in({in.begin(), in.end()}), on_out({out.begin(), out.end()});
  cuda::Stream stream;
  run(stream, {static_cast<U32*>(Tensor(on_in).data), static_cast<U32*>(Tensor(on_out).data)});
  stream.wait();
  const auto fetched = on_out.fetch(), read = on_in.fetch();
  CHECK(Array(read.begin(), read.end()) == in);
  const auto end = fetched.begin() + static_cast<std::ptrdiff_t>(count);
  CHECK(Array(end, fetched.end()) == Array(guard_words, guard));
  return {fetched.begin(), end};
}
inline Array answer_of(const Run& run, const Array& in, int out_words) {
  return answer_of(run, in, Array(static_cast<std::size_t>(out_words), 0));
}

inline Array random_words(int count, unsigned seed, U32 largest = std::numeric_limits<U32>::max()) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<U32> pick(0, largest);
  Array words(static_cast<std::size_t>(count));
  for (U32& word : words) word = pick(random);
  return words;
}

}  // namespace hyb::kernels::testing
