#include "kernels/linear/input_observer.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/ops/moe_experts.h"
#include "tests/kernels/support.h"

namespace input_observer_test {

using namespace hyb;
using namespace hyb::kernels;
using namespace hyb::kernels::testing;

namespace {

/// Keeps what it is shown.
struct Notes : InputObserver {
  struct Note {
    const Weight* weight;
    std::int64_t expert;
    std::vector<std::string> rows;
  };
  std::vector<Note> notes;

  void see(Queue&, const Inputs& inputs) override {
    Note& note = notes.emplace_back(Note{&inputs.weight, inputs.expert, {}});
    const auto bytes = static_cast<std::size_t>(inputs.weight.columns()) * size_of(inputs.dtype);
    for (std::int64_t i = 0; i < inputs.rows; ++i) {
      note.rows.emplace_back(reinterpret_cast<const char*>(inputs.row(i)), bytes);
    }
  }
};

std::string row_of(const Tensor& tensor, std::int64_t i) {
  const auto bytes = static_cast<std::size_t>(tensor.dim(1)) * size_of(tensor.dtype);
  return {reinterpret_cast<const char*>(tensor.rows(i, 1).as<std::byte>()), bytes};
}

Weight packed(Queue& queue, std::int64_t experts, std::int64_t rows, std::int64_t columns) {
  const TestTensor numbers = random_tensor(DType::bf16, {experts, rows, columns}, 1, 0.3F);
  const auto bytes = numbers.packed();
  return Weight::pack(queue, {DType::bf16, experts, rows, columns, bytes}, DType::bf16);
}

}  // namespace

TEST_SUITE("kernels/linear/input_observer") {
  TEST_CASE("products show their rows, and the same products come of it") {
    for (const Isa isa : available_isas()) {
      Queue queue = test_queue(isa, 2);
      const Weight weight = packed(queue, 1, 40, 24);
      const TestTensor x = random_tensor(DType::bf16, {5, 24}, 2);
      TestTensor alone(DType::bf16, {5, 40}), watched(DType::bf16, {5, 40});
      linear(queue, {.x = x, .weight = &weight, .y = alone});
      Notes notes;
      queue.set_observer(&notes);
      linear(queue, {.x = x, .weight = &weight, .y = watched});
      queue.set_observer(nullptr);
      linear(queue, {.x = x, .weight = &weight, .y = alone});
      CHECK(same_bytes(alone, watched));
      REQUIRE(notes.notes.size() == 1);
      CHECK(notes.notes[0].weight == &weight);
      REQUIRE(notes.notes[0].rows.size() == 5);
      for (std::int64_t i = 0; i < 5; ++i) {
        CHECK(notes.notes[0].rows[static_cast<std::size_t>(i)] == row_of(x, i));
      }
    }
  }

  TEST_CASE("each chosen expert shows the tokens that chose it") {
    Queue queue = test_queue(best_isa(), 2);
    const Weight up = packed(queue, 4, 32, 24), down = packed(queue, 4, 24, 16);
    const TestTensor x = random_tensor(DType::bf16, {3, 24}, 2);
    TestTensor y(DType::bf16, {3, 24}), chosen(DType::i32, {3, 2});
    const TestTensor weights = random_tensor(DType::f32, {3, 2}, 4);
    const std::int32_t choice[3][2] = {{3, 0}, {0, 1}, {3, 1}};  // none is expert 2
    for (std::int64_t t = 0; t < 3; ++t) {
      std::memcpy(chosen.view().row<std::int32_t>(t), choice[t], sizeof(choice[t]));
    }
    const MoeExpertsShape shape = {.tokens = 3,
                                   .chosen = 2,
                                   .experts = 4,
                                   .hidden = 24,
                                   .intermediate = 16,
                                   .dtype = DType::bf16,
                                   .activation = gated_silu};
    const auto bytes = static_cast<std::int64_t>(moe_experts_workspace_bytes(shape));
    const Buffer buffer(Device::cpu, static_cast<std::size_t>(bytes));
    Notes notes;
    queue.set_observer(&notes);
    moe_experts(queue, {.x = x,
                        .chosen = chosen,
                        .weights = weights,
                        .gate_up = &up,
                        .down = &down,
                        .y = y,
                        .workspace = buffer.tensor(0, DType::u8, {bytes}),
                        .activation = gated_silu});
    REQUIRE(notes.notes.size() == 6);
    const std::vector<std::string> rows[] = {
        {row_of(x, 0), row_of(x, 1)}, {row_of(x, 1), row_of(x, 2)}, {row_of(x, 0), row_of(x, 2)}};
    const std::int64_t experts[] = {0, 1, 3};
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(notes.notes[i].weight == &up);
      CHECK(notes.notes[i].expert == experts[i]);
      CHECK(notes.notes[i].rows == rows[i]);
      CHECK(notes.notes[i + 3].weight == &down);
      CHECK(notes.notes[i + 3].expert == experts[i]);
      CHECK(notes.notes[i + 3].rows.size() == 2);
    }
  }
}

}  // namespace input_observer_test
