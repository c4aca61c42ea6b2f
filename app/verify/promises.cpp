#include "app/verify/promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "core/engine/drafter.h"

namespace hyb::app {
namespace {

constexpr std::size_t copies = 4;

/// The rows of `whole` from token number `from` of its answer on.
Trace tail_of(const Trace& whole, std::size_t from) {
  const std::size_t width = whole.logits.size() / whole.tokens.size();
  return {.tokens = {whole.tokens.begin() + static_cast<std::ptrdiff_t>(from), whole.tokens.end()},
          .logits = {whole.logits.begin() + static_cast<std::ptrdiff_t>(from * width),
                     whole.logits.end()}};
}

/// Keeps the tokens of every request.
class TokenSink : public Sink {
 public:
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId request, std::int32_t, const Completion& completion) override {
    const auto at = static_cast<std::size_t>(request);
    if (answers.size() <= at) answers.resize(at + 1);
    answers[at] = completion;
  }

  std::vector<Completion> answers;  ///< by RequestId
};

/// Drafts what the passages drew alone, up to a random place, and from there what they did not:
/// passage i is request i.
class AnswerDrafter final : public Drafter {
 public:
  /// Both outlive it.
  AnswerDrafter(std::span<const Passage> passages, std::span<const Trace> answers,
                std::uint64_t seed)
      : passages_(passages), answers_(answers), random_(seed) {}

  void draft(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      const auto i = static_cast<std::size_t>(job.sequence.request);
      const std::size_t begin = job.tokens.size() - passages_[i].prompt.size();
      const std::vector<TokenId>& tokens = answers_[i].tokens;
      const std::size_t end = std::min(tokens.size(), begin + static_cast<std::size_t>(job.most));
      job.drafts.assign(tokens.begin() + static_cast<std::ptrdiff_t>(std::min(begin, end)),
                        tokens.begin() + static_cast<std::ptrdiff_t>(end));
      const std::size_t wrong = random_() % (static_cast<std::size_t>(drafts_max) + 2);
      if (wrong < job.drafts.size()) {
        if (job.guesses > 1) job.others.push_back(job.drafts);
        std::rotate(job.drafts.begin() + static_cast<std::ptrdiff_t>(wrong), job.drafts.end() - 1,
                    job.drafts.end());
      }
    }
  }
  bool may_draft_after_next(const ArrivalOrder&, std::span<const TokenId>) override { return true; }
  void forget(const ArrivalOrder&) override {}

 private:
  std::span<const Passage> passages_;
  std::span<const Trace> answers_;
  std::mt19937_64 random_;
};

}  // namespace

Promises::Promises(Runner& runner, std::vector<Passage> passages, std::uint64_t seed,
                   std::function<void(const Verdict&)> on_verdict)
    : runner_(&runner),
      passages_(std::move(passages)),
      seed_(seed),
      on_verdict_(std::move(on_verdict)) {}

void Promises::add(Verdict verdict) {
  on_verdict_(verdict);
  verdicts_.push_back(std::move(verdict));
}

void Promises::compare(const std::string& promise, std::span<const Trace> found) {
  Verdict verdict = {.promise = promise, .fault = {}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    verdict.rows += static_cast<std::int64_t>(found[i].tokens.size());
    const std::string fault = difference(alone_[i], found[i]);
    if (!fault.empty() && verdict.is_kept()) verdict.fault = fmt::format("prompt {}, {}", i, fault);
  }
  add(std::move(verdict));
}

std::vector<std::int32_t> Promises::random_cuts(std::size_t tokens) {
  std::mt19937_64 random(seed_++);
  std::vector<std::int32_t> cuts;
  for (std::size_t done = 0; done < tokens;) {
    // Many short spans and a few long ones.
    const std::uint64_t most = random() % 4 == 0 ? 64 : 9;
    cuts.push_back(static_cast<std::int32_t>(1 + random() % most));
    done += static_cast<std::size_t>(cuts.back());
  }
  return cuts;
}

void Promises::run_alone() {
  Verdict verdict = {.promise = "logits are numbers", .fault = {}};
  Replay replay(*runner_);
  for (std::size_t i = 0; i < passages_.size(); ++i) {
    alone_.push_back(std::move(replay.run({&passages_[i], 1}).front()));
    verdict.rows += static_cast<std::int64_t>(alone_.back().tokens.size());
    const std::vector<float>& logits = alone_.back().logits;
    const bool finite =
        std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
    if (!finite && verdict.is_kept()) {
      verdict.fault = fmt::format("prompt {}: NaN or infinity among the logits", i);
    }
  }
  add(std::move(verdict));
}

void Promises::check_together() { compare("together = alone", Replay(*runner_).run(passages_)); }

void Promises::check_cuts() {
  std::vector<Passage> cut = passages_;
  for (Passage& passage : cut) passage.cuts = random_cuts(passage.prompt.size());
  compare("in pieces = whole", Replay(*runner_).run(cut));
}

void Promises::check_copies() {
  Verdict verdict = {.promise = fmt::format("{} at once, one answer", copies), .fault = {}};
  Replay replay(*runner_);
  for (std::size_t i = 0; i < passages_.size(); ++i) {
    std::vector<Passage> same(copies, passages_[i]);
    same.back().cuts = random_cuts(passages_[i].prompt.size());
    for (const Trace& trace : replay.run(same)) {
      verdict.rows += static_cast<std::int64_t>(trace.tokens.size());
      const std::string fault = difference(alone_[i], trace);
      if (!fault.empty() && verdict.is_kept()) {
        verdict.fault = fmt::format("prompt {}, {}", i, fault);
      }
    }
  }
  add(std::move(verdict));
}

void Promises::check_resume() {
  Verdict verdict = {.promise = "checkpoint and resume = straight run", .fault = {}};
  Replay replay(*runner_);
  std::mt19937_64 random(seed_++);
  for (std::size_t i = 0; i < passages_.size(); ++i) {
    const std::size_t prompt = passages_[i].prompt.size();
    const auto answer = static_cast<std::size_t>(passages_[i].answer_tokens);
    if (prompt + answer < 3) continue;
    const std::size_t at = 1 + random() % (prompt + answer - 2);
    // The row of a checkpoint's last token is drawn before it is taken.
    const std::size_t drawn = at < prompt ? 0 : at - prompt + 1;
    const Trace expected = tail_of(alone_[i], drawn);
    const auto resumed = replay.run_resumed(passages_[i], static_cast<std::int32_t>(at));
    for (const Trace* trace : {&resumed.straight_on, &resumed.first, &resumed.second}) {
      verdict.rows += static_cast<std::int64_t>(trace->tokens.size());
      const std::string fault = difference(expected, *trace);
      if (!fault.empty() && verdict.is_kept()) {
        verdict.fault = fmt::format("prompt {}, checkpoint at {}, {}", i, at, fault);
      }
    }
  }
  add(std::move(verdict));
}

void Promises::check_packed(Runner& packed) {
  Verdict verdict = {.promise = "int8 snapshot, two that resume: one answer", .fault = {}};
  Replay replay(packed);
  std::mt19937_64 random(seed_++);
  for (std::size_t i = 0; i < passages_.size(); ++i) {
    const auto tokens =
        static_cast<std::int32_t>(passages_[i].prompt.size()) + passages_[i].answer_tokens;
    if (tokens < 3) continue;
    const auto at =
        static_cast<std::int32_t>(1 + random() % static_cast<std::uint64_t>(tokens - 2));
    const auto resumed = replay.run_resumed(passages_[i], at, Precision::int8);
    verdict.rows += static_cast<std::int64_t>(resumed.second.tokens.size());
    const std::string fault = difference(resumed.first, resumed.second);
    if (!fault.empty() && verdict.is_kept()) {
      verdict.fault = fmt::format("prompt {}, snapshot at {}, {}", i, at, fault);
    }
  }
  add(std::move(verdict));
}

std::vector<Completion> Promises::run_engine(const SpeculationOptions& speculation) {
  std::int32_t length_max = 0;
  for (const Passage& passage : passages_) {
    length_max = std::max(length_max,
                          static_cast<std::int32_t>(passage.prompt.size()) + passage.answer_tokens);
  }
  Engine engine(*runner_, nullptr,
                {.length_max = length_max,
                 .sequences_max = static_cast<std::int32_t>(passages_.size()),
                 .chunk_tokens = 48,
                 .speculation = speculation});
  TokenSink sink;
  for (const Passage& passage : passages_) {
    Request request;
    request.prompt = passage.prompt;
    request.max_tokens = passage.answer_tokens;
    request.sampling = passage.sampling;
    engine.submit(std::move(request), sink);
    engine.step();  // the others are under way when it joins
  }
  while (engine.step()) {
  }
  return std::move(sink.answers);
}

void Promises::compare_answers(const std::string& promise, std::span<const Completion> answers,
                               std::string fault) {
  Verdict verdict = {.promise = promise, .fault = std::move(fault)};
  for (std::size_t i = 0; i < passages_.size(); ++i) {
    const std::vector<TokenId>& tokens = answers[i].tokens;
    verdict.rows += static_cast<std::int64_t>(tokens.size());
    if (tokens != alone_[i].tokens && verdict.is_kept()) {
      verdict.fault = fmt::format("prompt {}: other tokens", i);
    }
  }
  add(std::move(verdict));
}

void Promises::check_engine() { compare_answers("engine = straight run", run_engine({}), {}); }

void Promises::check_speculation() {
  AnswerDrafter drafter(passages_, alone_, seed_++);
  const bool has_branches = runner_->capacity().step_branches > 0;
  const std::vector<Completion> answers = run_engine({.is_on = true,
                                                      .draft_steps = drafts_max,
                                                      .tree = {.branches = has_branches ? 2 : 1},
                                                      .drafter = &drafter});
  bool has_drafts = false;
  for (const Completion& answer : answers) has_drafts |= answer.usage.drafts.steps > 0;
  const bool can_have = std::ranges::any_of(
      passages_, [](const Passage& passage) { return passage.answer_tokens > 2; });
  compare_answers("speculation = plain", answers,
                  can_have && !has_drafts ? "no step had drafts" : "");
}

void Promises::check_runner(Runner& other, const std::string& what) {
  compare(what, Replay(other).run(passages_));
}

}  // namespace hyb::app
