#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/runtime/memory_plan.h"
#include "app/runtime/session.h"
#include "tests/models/loaded.h"

namespace hyb::testing {

using namespace hyb::app;

/// SSD, a delta net, windows, columns in an order.
inline const std::vector<std::string> lane_models = {"granite-moe-nope", "qwen3_5-dense", "gpt-oss",
                                                     "qwen3-moe-gptq"};

inline const LaneFlags one_card = {
    .is_on = true, .prefill_device = "cuda0", .decode_device = "cuda0"};

inline constexpr std::int32_t context = 300;

inline ModelOptions options_for(const std::string& name, const LaneFlags& lanes) {
  ModelOptions options;
  options.model = (models::testing::golden_folder / name).string();
  options.device = kernels::Device::cuda;
  options.threads = 2;
  options.memory = parse_memory("24MiB");
  options.context = context;
  options.batch_invariant = true;
  if (name != "qwen3-moe-gptq") options.types.random_weights = 3;  // which have no order
  options.lanes = lanes;
  options.reuse.audit = true;
  return options;
}

inline const SessionShape shape = {.sequences_max = 3, .chunk_tokens = 32};

class Answer : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId, std::int32_t, const Completion& completion) override {
    tokens = completion.tokens;
  }
  std::vector<TokenId> tokens;
};

/// Prompts of one step and of several, some of which begin as others do.
inline std::vector<Request> requests() {
  std::vector<Request> all;
  for (const std::int32_t length : {9, 70, 110, 71}) {
    Request request;
    const std::int32_t seed = length % 2;
    for (std::int32_t i = 0; i < length; ++i) {
      request.prompt.push_back(TokenId{(i * 7 + 3 + seed) % 50});
    }
    request.max_tokens = 5;
    request.ignore_eos = true;
    all.push_back(request);
  }
  return all;
}

struct Run {
  std::vector<std::vector<TokenId>> answers;
  EngineUsage usage;
};

inline Run run(Session& session, const std::vector<Request>& asked = requests()) {
  std::vector<Answer> sinks(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) session.engine().submit(asked[i], sinks[i]);
  while (!session.engine().idle()) session.engine().step();
  Run result;
  for (const Answer& sink : sinks) result.answers.push_back(sink.tokens);
  result.usage = session.engine().usage();
  return result;
}

inline Run run(const ModelOptions& options, const SessionShape& of = shape) {
  Session session = Session::open(resolve(options, {}), of);
  return run(session);
}

}  // namespace hyb::testing
