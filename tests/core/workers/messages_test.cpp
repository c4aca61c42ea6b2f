#include "core/workers/messages.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/sim/random.h"
#include "tests/support/error_text.h"

namespace messages_test {

using namespace hyb;
using hyb::sim::Random;
using hyb::testing::contains;
using hyb::testing::error_text;

namespace {

template <typename T>
std::vector<T> numbers(Random& random, std::size_t count) {
  std::vector<T> list(count);
  for (T& one : list) one = static_cast<T>(random.between(0, 1000));
  return list;
}

/// A step, and what its views show.
struct RandomStep {
  explicit RandomStep(Random& random) {
    step.draft_entries = random.chance(50);
    const std::int32_t spans = random.between(0, 4);
    for (std::int32_t i = 0; i < spans; ++i) add_span(random);
  }

  void add_span(Random& random) {
    const auto count = static_cast<std::size_t>(random.between(1, 9));
    std::vector<PageTable>& own = tables.emplace_back(random.below(4));
    for (PageTable& pages : own) pages = numbers<PageId>(random, random.below(5));
    Span& span = step.spans.emplace_back(
        Span{.tokens = tokens.emplace_back(numbers<TokenId>(random, count)),
             .position = random.between(0, 99),
             .tables = own,
             .read_slot = SlotId{random.between(-1, 5)},
             .write_slot = SlotId{random.between(-1, 5)},
             .samples = {},
             .drafts = random.between(0, static_cast<std::int32_t>(count) - 1),
             .ring = RingId{random.between(-1, 3)},
             .branch_ring = RingId{random.between(-1, 3)},
             .ring_entries = random.between(0, 3)});
    const std::int32_t rows = random.between(0, 3);
    for (std::int32_t row = 0; row < rows; ++row) {
      SamplingParams& own_params = params.emplace_back();
      own_params.bias = {{TokenId{3}, 1.5F}, {TokenId{4}, -2.5F}};
      own_params.logprobs = random.between(-1, 5);
      for (const Parameter& parameter : sampling_parameters) {
        const auto number = random.between(0, 50);
        std::visit([&]<typename T>(
                       T SamplingNumbers::*member) { own_params.*member = static_cast<T>(number); },
                   parameter.member);
      }
      const auto& history = tokens.emplace_back(numbers<TokenId>(random, random.below(30)));
      span.samples.push_back({.token = static_cast<std::int32_t>(random.below(count)),
                              .params = &own_params,
                              .draw = random.bits(),
                              .history = history,
                              .prompt_tokens = static_cast<std::int32_t>(history.size() / 2)});
    }
  }

  Step step;
  std::deque<std::vector<TokenId>> tokens;
  std::deque<std::vector<PageTable>> tables;
  std::deque<SamplingParams> params;
};

StepResult random_result(Random& random) {
  StepResult result;
  const std::int32_t rows = random.between(0, 4);
  for (std::int32_t row = 0; row < rows; ++row) {
    SampledToken& sampled = result.sampled.emplace_back();
    sampled = {.token = TokenId{random.between(0, 99)},
               .finite = random.chance(80),
               .logprob = -1.5F,
               .top = {}};
    for (std::int32_t i = random.between(0, 3); i > 0; --i) sampled.top.push_back({TokenId{i}, -2});
  }
  result.draft_entry_seconds = random.between(0, 9);
  return result;
}

void check_equal(const Span& one, const Span& other) {
  CHECK(std::ranges::equal(one.tokens, other.tokens));
  CHECK(std::ranges::equal(one.tables, other.tables));
  CHECK(one.position == other.position);
  CHECK(one.read_slot == other.read_slot);
  CHECK(one.write_slot == other.write_slot);
  CHECK(one.drafts == other.drafts);
  CHECK(one.ring == other.ring);
  CHECK(one.branch_ring == other.branch_ring);
  CHECK(one.ring_entries == other.ring_entries);
  REQUIRE(one.samples.size() == other.samples.size());
  for (std::size_t i = 0; i < one.samples.size(); ++i) {
    const SampleRow &row = one.samples[i], &same = other.samples[i];
    CHECK(row.token == same.token);
    CHECK(row.draw == same.draw);
    CHECK(std::ranges::equal(row.history, same.history));
    CHECK(row.prompt_tokens == same.prompt_tokens);
    for (const Parameter& parameter : sampling_parameters) {
      CHECK(parameter.value(*row.params) == parameter.value(*same.params));
    }
    CHECK(row.params->logprobs == same.params->logprobs);
    REQUIRE(row.params->bias.size() == same.params->bias.size());
    CHECK(row.params->bias[1].token == same.params->bias[1].token);
    CHECK(row.params->bias[1].bias == same.params->bias[1].bias);
  }
}

/// Reads a message as whatever it says that it is.
void read_any(const Message& message) {
  switch (read_header(message).kind) {
    case MessageKind::hello:
      read_hello(message);
      break;
    case MessageKind::step:
      OwnedStep{message};
      break;
    case MessageKind::result:
      read_result(message);
      break;
    case MessageKind::failure:
      read_failure(message);
      break;
    case MessageKind::heartbeat:
      break;
  }
}

Message random_message(Random& random) {
  switch (random.below(4)) {
    case 0:
      return hello_message({{"model", "this"}, {"page size", "16"}});
    case 1:
      return step_message(random.bits(), RandomStep(random).step);
    case 2:
      return result_message(random.bits(), random_result(random));
    default:
      return failure_message(random.bits(), ErrorKind::memory, "too little");
  }
}

/// Some of its bytes are others, lost, or more, and its length may say so.
void damage(Message& message, Random& random) {
  for (std::int32_t i = random.between(1, 4); i > 0 && !message.empty(); --i) {
    const std::size_t at = random.below(message.size());
    if (random.chance(70)) {
      message[at] = static_cast<std::byte>(random.bits());
    } else if (random.chance(50)) {
      message.resize(at);
    } else {
      message.insert(message.begin() + static_cast<std::ptrdiff_t>(at), std::byte{7});
    }
  }
  if (message.size() < message_header_bytes || random.chance(30)) return;
  const std::uint64_t body = message.size() - message_header_bytes;
  std::memcpy(message.data() + 16, &body, sizeof body);
}

}  // namespace

TEST_SUITE("core/workers/messages") {
  TEST_CASE("what is sent is what is read, by value") {
    Random random(1);
    for (int round = 0; round < 300; ++round) {
      Message message;
      std::vector<Span> expected;
      const RandomStep sent(random);
      message = step_message(17, sent.step);
      CHECK(read_header(message).epoch == 17);
      const OwnedStep read(message);
      CHECK(read.step().draft_entries == sent.step.draft_entries);
      CHECK(read.step().orders.empty());
      REQUIRE(read.step().spans.size() == sent.step.spans.size());
      for (std::size_t i = 0; i < sent.step.spans.size(); ++i) {
        check_equal(sent.step.spans[i], read.step().spans[i]);
      }

      const StepResult result = random_result(random);
      const StepResult same = read_result(result_message(18, result));
      CHECK(same.draft_entry_seconds == result.draft_entry_seconds);
      REQUIRE(same.sampled.size() == result.sampled.size());
      for (std::size_t i = 0; i < same.sampled.size(); ++i) {
        CHECK(same.sampled[i].token == result.sampled[i].token);
        CHECK(same.sampled[i].finite == result.sampled[i].finite);
        CHECK(same.sampled[i].logprob == result.sampled[i].logprob);
        CHECK(same.sampled[i].top.size() == result.sampled[i].top.size());
      }
    }
    const Error error = read_failure(failure_message(3, ErrorKind::memory, "too little"));
    CHECK(error.kind() == ErrorKind::memory);
    CHECK(std::string(error.what()) == "too little");
    const WorkerIdentity identity = {{"model", "this"}, {"page size", "16"}};
    CHECK(read_hello(hello_message(identity)) == identity);
    CHECK(read_header(heartbeat_message(5)).kind == MessageKind::heartbeat);
  }

  TEST_CASE("damaged and random bytes are an error or a message, and nothing else") {
    Random random(2);
    int refused = 0;
    for (int round = 0; round < 20'000; ++round) {
      Message message = random_message(random);
      damage(message, random);
      if (!error_text([&] { read_any(message); }).empty()) ++refused;
    }
    CHECK(refused > 15'000);
    for (int round = 0; round < 2'000; ++round) {
      Message message(random.below(200));
      for (std::byte& byte : message) byte = static_cast<std::byte>(random.bits());
      CHECK(contains(error_text([&] { read_any(message); }), "worker message: "));
    }
  }

  TEST_CASE("errors say what is wrong") {
    Message message = heartbeat_message(1);
    const auto refusal = [](const Message& of) { return error_text([&] { read_any(of); }); };
    CHECK(contains(refusal(Message(3)), "ends within its header"));
    message[4] = std::byte{9};
    CHECK(contains(refusal(message), "of version 9, this is version 5"));
    message = heartbeat_message(1);
    message[6] = std::byte{77};
    CHECK(contains(refusal(message), "no kind 77"));
    message = heartbeat_message(1);
    message.push_back(std::byte{0});
    CHECK(contains(refusal(message), "says 0 bytes and has 1"));
    message = heartbeat_message(1);
    message[22] = std::byte{1};
    CHECK(contains(refusal(message), "1073741824 at most"));
    CHECK(contains(error_text([] { read_result(heartbeat_message(1)); }), "of kind 5, not 3"));
    Step step;
    step.orders.emplace_back(PackSlot{});
    CHECK(contains(error_text([&] { step_message(1, step); }), "carries out orders"));
  }

  TEST_CASE("the first difference of a worker is named with both values") {
    const WorkerIdentity engine = {{"model", "this"}, {"page size", "16"}};
    const auto refusal = [&](const WorkerIdentity& worker) {
      return error_text([&] { check_same(engine, worker); });
    };
    CHECK(refusal(engine).empty());
    CHECK(refusal({{"model", "this"}, {"page size", "32"}}) ==
          "worker: its page size is 32, the engine's is 16");
    CHECK(refusal({{"model", "that"}, {"page size", "32"}}) ==
          "worker: its model is that, the engine's is this");
    CHECK(contains(refusal({{"model", "this"}}), "names nothing more where the engine names page"));
    CHECK(contains(refusal({{"colour", "this"}}), "names colour where the engine names model"));
  }
}

}  // namespace messages_test
