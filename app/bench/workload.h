#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/cases.h"
#include "core/base/ids.h"
#include "core/engine/request.h"
#include "core/engine/trace.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// The requests of a workload.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  virtual std::size_t size() const = 0;

  /// Seconds after the start of the workload at which request i arrives; all 0: as soon as there is
  /// room for it.
  virtual double due_s(std::size_t) const { return 0; }

  /// The request that has to be answered before i can be sent: i is its next turn.
  virtual std::optional<std::size_t> follows(std::size_t) const { return std::nullopt; }

  /// Request i; called once, when it is sent.
  virtual Request request(std::size_t i) = 0;

  /// The engine knows request i by this id.
  virtual void sent(std::size_t, RequestId) {}

  /// Request i was answered.
  virtual void answered(std::size_t, const Completion&) {}
};

/// When this many requests arrive, in seconds: the gaps have a gamma distribution of shape
/// `burstiness` (1: a Poisson process, less: in bursts, infinity: even) and mean 1 / rate, and are
/// scaled so that the last request comes at count / rate, as vLLM has it. An infinite rate: all at
/// 0.
std::vector<double> arrival_times(std::size_t count, double rate, double burstiness,
                                  std::uint64_t seed);

/// A request of a workload, and how much of it is prefilled beforehand in a warm row.
struct WorkItem {
  Request request;
  std::int32_t primed_tokens = 0;
};

/// Random numbers of one repetition of one row: no other draws the same prompts.
struct DrawSeed {
  std::uint64_t seed = 0, row = 0, repetition = 0;

  /// `purpose` keeps apart what one repetition draws.
  std::mt19937_64 generator(std::uint64_t purpose) const;
};

/// Source of the tokens of prompts.
struct PromptMaterial {
  std::int32_t vocab;      ///< ids below it may be in prompts
  Request terms = {};      ///< what all requests have in common; the prompt is empty
  double range_ratio = 0;  ///< lengths are uniform within this share of what the case says
  const Tokenizer* tokenizer = nullptr;
  std::vector<TokenId> corpus = {};     ///< of Dataset::corpus
  std::string text;                     ///< of Dataset::send_one
  std::vector<Request> from_file = {};  ///< of Dataset::file
};

/// Requests that are known beforehand, and the answers they got.
class ListedRequests : public RequestSource {
 public:
  /// `due_s`: when each comes; empty: all at once. The work outlives this.
  explicit ListedRequests(std::span<const WorkItem> work, std::vector<double> due_s = {})
      : work_(work), due_s_(std::move(due_s)), answers_(work.size()) {}

  std::size_t size() const override { return work_.size(); }
  double due_s(std::size_t i) const override { return due_s_.empty() ? 0 : due_s_[i]; }
  Request request(std::size_t i) override { return work_[i].request; }
  void answered(std::size_t i, const Completion& completion) override {
    answers_[i] = completion.tokens;
  }

  /// Empty where there is none.
  const std::vector<std::vector<TokenId>>& answers() const { return answers_; }

 protected:
  const WorkItem& item(std::size_t i) const { return work_[i]; }

 private:
  std::span<const WorkItem> work_;
  std::vector<double> due_s_;
  std::vector<std::vector<TokenId>> answers_;
};

/// The requests of a case. Throws Error(usage) where the material is missing: a text without a
/// tokenizer, a corpus shorter than a prompt.
std::vector<WorkItem> work_of(const RequestCase& test, const PromptMaterial& material,
                              const DrawSeed& seed);

/// The next turns of conversations: prompt, answer and `question_tokens` new random tokens. `work`
/// and `answers` are of equal size; a request without an answer has no next turn.
std::vector<WorkItem> next_turns(std::vector<WorkItem> work,
                                 std::span<const std::vector<TokenId>> answers,
                                 std::int32_t question_tokens, const PromptMaterial& material,
                                 const DrawSeed& seed);

struct TraceOptions {
  Request terms;            ///< what all requests have in common
  std::int32_t vocab = 0;   ///< of the tokens that segments stand for
  bool uses_times = false;  ///< requests come when the trace says; else all are due at once
};

/// The trace with all lengths divided, rounded up: what was shared is shared.
std::vector<ReplayRequest> scaled_trace(std::vector<ReplayRequest> trace, std::int32_t scale_down);

/// A trace run on a real model. Where a prompt continues an answer of the trace it continues the
/// tokens that the model gave instead, and waits for them.
class TraceRequests final : public RequestSource {
 public:
  /// The trace outlives this.
  TraceRequests(std::span<const ReplayRequest> trace, TraceOptions options);

  std::size_t size() const override { return trace_.size(); }
  double due_s(std::size_t i) const override;
  std::optional<std::size_t> follows(std::size_t i) const override { return follows_[i]; }
  Request request(std::size_t i) override;
  void answered(std::size_t i, const Completion& completion) override;

 private:
  void append(std::vector<TokenId>& tokens, const Segment& segment) const;

  std::span<const ReplayRequest> trace_;
  TraceOptions options_;
  std::vector<std::optional<std::size_t>> follows_;
  std::map<std::int64_t, std::size_t> answers_to_come_;  ///< segment -> request that makes it
  std::map<std::int64_t, std::vector<TokenId>> given_;   ///< segments that the model made
};

}  // namespace hyb::app
