#include "kernels/cuda/staging.h"

#include <algorithm>
#include <numeric>

#include "tests/cuda/support.h"

namespace staging_test {

using namespace hyb;
using namespace hyb::kernels;

namespace {

std::vector<int> numbers(int count, int first) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::vector<int> fetched(cuda::Stream& stream, const int* device, std::int64_t count) {
  cuda::Readback readback(stream);
  const std::span<const int> values = readback.copy(device, count);
  readback.wait();
  return {values.begin(), values.end()};
}

TEST_SUITE("cuda/staging") {
  TEST_CASE("what is taken and uploaded is on the device, each take in its own place") {
    cuda::Stream stream;
    cuda::Staging staging(stream);
    staging.clear();
    std::vector<cuda::Staged<int>> taken;
    for (int i = 0; i < 6; ++i) {  // past the first chunk and past its double
      const int count = i == 3 ? 70'000 : 5'000 * i;
      taken.push_back(staging.take<int>(count));
      CHECK(reinterpret_cast<std::uintptr_t>(taken.back().device) % 64 == 0);
      std::ranges::copy(numbers(count, i * 1'000'000), taken.back().host.begin());
    }
    staging.upload();
    for (int i = 0; i < 6; ++i) {
      const auto& each = taken[static_cast<std::size_t>(i)];
      const auto count = static_cast<int>(each.host.size());
      CHECK(fetched(stream, each.device, count) == numbers(count, i * 1'000'000));
    }
  }

  TEST_CASE("a round is filled while the one before is still to be copied") {
    cuda::Stream stream;
    cuda::Staging staging(stream);
    staging.reserve(1024);
    cuda::Readback readback(stream);
    std::vector<std::span<const int>> answers;
    for (int round = 0; round < 5; ++round) {
      staging.clear();
      const auto table = staging.take<int>(100);
      std::ranges::copy(numbers(100, round * 1000), table.host.begin());
      staging.upload();
      answers.push_back(readback.copy(table.device, 100));
    }
    readback.wait();
    for (int round = 0; round < 5; ++round) {
      const auto& answer = answers[static_cast<std::size_t>(round)];
      CHECK(std::ranges::equal(answer, numbers(100, round * 1000)));
    }
  }

  TEST_CASE("after reserve the same takes get the same addresses, and so do those of a graph") {
    cuda::Stream stream;
    cuda::Staging staging(stream);
    staging.reserve(200'000);
    std::vector<const void*> first;
    for (int round = 0; round < 4; ++round) {
      staging.reserve(150'000);  // is there already
      staging.clear();
      const std::vector<const void*> places = {staging.take<char>(1).device,
                                               staging.take<double>(10'000).device,
                                               staging.take<int>(10'000).device};
      if (round == 0) first = places;
      CHECK(places == first);
      staging.upload();
    }
  }

  TEST_CASE("readback gives its room again after clear and grows past what was reserved") {
    cuda::Stream stream;
    cuda::Staging staging(stream);
    staging.clear();
    const auto table = staging.take<int>(40'000);
    std::ranges::copy(numbers(40'000, 7), table.host.begin());
    staging.upload();
    cuda::Readback readback(stream);
    readback.reserve(100);
    for (int round = 0; round < 3; ++round) {
      readback.clear();
      const auto some = readback.copy(table.device + 3, 5);
      const auto all = readback.copy(table.device, 40'000);
      readback.wait();
      CHECK(std::ranges::equal(some, numbers(5, 10)));
      CHECK(std::ranges::equal(all, numbers(40'000, 7)));
    }
  }
}

}  // namespace

}  // namespace staging_test
