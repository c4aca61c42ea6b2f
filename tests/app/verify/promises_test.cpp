#include "app/verify/promises.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <variant>

#include "app/runtime/model_outline.h"
#include "app/verify/passages.h"
#include "models/memory_layout.h"

namespace promises_test {

using namespace hyb;
using namespace hyb::app;

namespace {

/// A way in which a runner could break a promise.
enum class Fault {
  none,
  company_shows,    ///< a row's logits depend on how many spans the step has
  cut_shows,        ///< a long span computes its last row differently
  order_lost,       ///< the copies of pages are not carried out
  packed_lost,      ///< of the sequences that go on from one int8 snapshot the last gets zeros
  reads_live_slot,  ///< the first step after a checkpoint or resume reads the slot it writes
  nothing_but_nan,  ///< one logit is not a number
  other_token,      ///< the logits are right, the token drawn beside two others is not
  drafts_show,      ///< the token drawn before drafts is another one
  branches_show,    ///< the first token drawn in a branch is another one
};

/// A real runner, spoilt.
class FaultyRunner : public Runner {
 public:
  FaultyRunner(Runner& runner, Fault fault) : runner_(&runner), fault_(fault) {}

  Capacity capacity() const override { return runner_->capacity(); }

  StepResult run(const Step& step) override {
    Step spoilt = step;
    if (fault_ == Fault::order_lost) spoilt.orders.clear();
    if (fault_ == Fault::packed_lost && !spoilt.orders.empty() &&
        std::holds_alternative<UnpackSlot>(spoilt.orders.back())) {
      spoilt.orders.pop_back();
    }
    for (Span& span : spoilt.spans) {
      if (fault_ == Fault::reads_live_slot && span.read_slot != no_slot) {
        span.read_slot = span.write_slot;
      }
    }
    StepResult result = runner_->run(spoilt);
    const std::size_t width =
        result.sampled.empty() ? 0 : result.logits.size() / result.sampled.size();
    std::size_t row = 0;
    for (const Span& span : step.spans) {
      if (span.samples.empty()) continue;
      if (width > 0) spoil(step, span, result.logits[row * width]);
      if (fault_ == Fault::other_token && step.spans.size() > 2)
        result.sampled[row].token = TokenId{1};
      if (fault_ == Fault::drafts_show && span.drafts > 0) result.sampled[row].token = TokenId{1};
      if (fault_ == Fault::branches_show && span.branch_ring != no_ring)
        result.sampled[row].token = TokenId{1};
      row += span.samples.size();
    }
    return result;
  }

  void read(ViewId view, std::int32_t unit, std::span<std::byte> bytes) override {
    runner_->read(view, unit, bytes);
  }
  void write(ViewId view, std::int32_t unit, std::span<const std::byte> bytes) override {
    runner_->write(view, unit, bytes);
  }

 private:
  void spoil(const Step& step, const Span& span, float& logit) const {
    const bool has_company = fault_ == Fault::company_shows && step.spans.size() > 1;
    const bool is_long = fault_ == Fault::cut_shows && span.tokens.size() > 20;
    if (has_company || is_long) logit = std::nextafter(logit, 100.0F);
    if (fault_ == Fault::nothing_but_nan) logit = std::numeric_limits<float>::quiet_NaN();
  }

  Runner* runner_;
  Fault fault_;
};

struct Opened {
  explicit Opened(const std::string& name)
      : model([&] {
          ModelOptions options;
          options.model = std::string(HYB_TESTS_DIR) + "/golden/" + name;
          options.device = kernels::Device::cpu;
          options.threads = 1;
          return open_bare(resolve(options, {}));
        }()),
        passages(make_passages({.prompts = 5,
                                .answer_tokens = 6,
                                .length_max = 80,
                                .vocab = model.model.plan.vocab,
                                .seed = 3},
                               nullptr)),
        runner(model.queue, model.model.plan, model.model.weights, model.model.geometry,
               {.memory = models::flat_memory(model.model.geometry, 48, 14, 4096,
                                              {.count = 16, .tokens = drafts_max}),
                .step_tokens = 256,
                .sequences_max = 8,
                .positions_max = 80,
                .vocab_used = model.model.plan.vocab,
                .step_samples = 128,
                .step_branches = 8}) {}

  /// The promises that do not hold.
  std::set<std::string> broken(Fault fault) {
    FaultyRunner faulty(runner, fault);
    Promises promises(faulty, passages, 5, [](const Verdict&) {});
    promises.run_alone();
    promises.check_together();
    promises.check_cuts();
    promises.check_copies();
    promises.check_resume();
    promises.check_engine();
    promises.check_speculation();
    promises.check_runner(runner, "spoilt = sound");
    std::set<std::string> names;
    for (const Verdict& verdict : promises.verdicts()) {
      CHECK(verdict.rows > 0);
      if (!verdict.is_kept()) names.insert(verdict.promise);
    }
    return names;
  }

  BareModel model;
  std::vector<Passage> passages;
  models::ModelRunner runner;
};

/// Whether two that go on from one int8 snapshot give one answer.
bool packed_is_kept(Opened& opened, Fault fault) {
  const models::ModelMemoryLayout layout = models::memory_layout_of(
      opened.model.model.geometry, {.pool_bytes = 2 << 20, .packed = true, .flat = {}});
  models::ModelRunner packed(opened.model.queue, opened.model.model.plan,
                             opened.model.model.weights, opened.model.model.geometry,
                             {.memory = layout,
                              .step_tokens = 256,
                              .sequences_max = 8,
                              .positions_max = 80,
                              .vocab_used = opened.model.model.plan.vocab,
                              .mapping = {.mode = kernels::MapMode::remap}});
  FaultyRunner faulty(packed, fault);
  Promises promises(opened.runner, opened.passages, 5, [](const Verdict&) {});
  promises.check_packed(faulty);
  CHECK(promises.verdicts().front().rows > 0);
  return promises.verdicts().front().is_kept();
}

using Names = std::set<std::string>;

}  // namespace

TEST_SUITE("app/verify/promises") {
  TEST_CASE("a sound runner keeps every promise") {
    for (const char* name : {"granite-moe-nope", "granite-mamba-only", "granite-attention-only"}) {
      CAPTURE(name);
      CHECK(Opened(name).broken(Fault::none) == Names{});
    }
  }

  TEST_CASE("each planted fault breaks the promises it should") {
    Opened opened("granite-dense-nope");
    CHECK(opened.broken(Fault::company_shows).contains("together = alone"));
    CHECK(opened.broken(Fault::company_shows).contains("4 at once, one answer"));
    CHECK(opened.broken(Fault::cut_shows).contains("in pieces = whole"));
    CHECK(opened.broken(Fault::cut_shows).contains("spoilt = sound"));
    // A branch of drafts begins with a copy, too.
    CHECK(opened.broken(Fault::order_lost) ==
          Names{"checkpoint and resume = straight run", "speculation = plain"});
    CHECK(opened.broken(Fault::reads_live_slot).contains("checkpoint and resume = straight run"));
    CHECK(opened.broken(Fault::nothing_but_nan).contains("logits are numbers"));
    CHECK(opened.broken(Fault::other_token).contains("engine = straight run"));
    CHECK(opened.broken(Fault::other_token).contains("together = alone"));
    CHECK(opened.broken(Fault::drafts_show) == Names{"speculation = plain"});
    CHECK(opened.broken(Fault::branches_show) == Names{"speculation = plain"});
  }

  TEST_CASE("two that go on from one int8 snapshot") {
    Opened opened("granite-dense-nope");
    CHECK(packed_is_kept(opened, Fault::none));
    CHECK_FALSE(packed_is_kept(opened, Fault::packed_lost));
  }

  TEST_CASE("a difference says where") {
    const Trace trace = {.tokens = {TokenId{3}, TokenId{4}}, .logits = {1, 2, 3, 4}};
    CHECK(difference(trace, trace) == "");
    Trace other = trace;
    other.tokens[1] = TokenId{9};
    CHECK(difference(trace, other) == "row 1: token 9 instead of 4");
    other = trace;
    other.logits[2] = 3.5F;
    CHECK(difference(trace, other) == "row 1: logits differ by up to 0.5");
    other.tokens.pop_back();
    CHECK(difference(trace, other) == "1 row instead of 2");
    other = trace;
    other.logits[0] = -0.0F;
    Trace zero = trace;
    zero.logits[0] = 0.0F;
    CHECK(difference(zero, other) != "");
  }
}

}  // namespace promises_test
