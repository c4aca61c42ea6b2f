#include "app/runtime/draft_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "app/request/model_texts.h"
#include "app/runtime/memory_plan.h"
#include "app/runtime/model_outline.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/text/tokenizer.h"

namespace hyb::app {
namespace {

/// The drafts of a step, by request.
class DraftSink final : public Sink {
 public:
  void add(RequestId request, DraftJob& job) { jobs_.emplace(request, &job); }
  void on_text(RequestId, std::int32_t, std::string_view) override {}
  void on_finish(RequestId request, std::int32_t, const Completion& completion) override {
    const auto job = jobs_.find(request);
    if (job == jobs_.end()) return;
    job->second->drafts = completion.tokens;
    for (const TokenEvent& event : completion.events) {
      job->second->likely.push_back(
          {.token = event.token, .logprob = event.logprob, .top = TopLogprobs(event.top)});
    }
  }

 private:
  std::map<RequestId, DraftJob*> jobs_;
};

}  // namespace

std::size_t draft_model_bytes(const RunSettings& settings) {
  if (settings.drafts.source != DraftSource::draft) return 0;
  if (head_of(settings)) return 0;  // counted with the model
  const std::size_t all = settings.memory.bytes;
  const ModelOutline outline = outline_of(draft_settings(settings, all));
  constexpr std::size_t workspace = std::size_t{64} << 20;
  return weight_bytes(outline.plan, settings.device, outline.geometry.load) + workspace + all / 8;
}

DraftModel::DraftModel(const RunSettings& settings, std::size_t bytes, const SessionShape& shape)
    : session_(
          Session::open(draft_settings(settings, bytes), {.sequences_max = shape.sequences_max})) {}

void DraftModel::check_vocabulary(const Tokenizer* target, std::int32_t vocab) {
  const auto fail = [&](const std::string& difference) {
    throw Error(ErrorKind::usage, fmt::format("--draft-model {}: its vocabulary is another: {}",
                                              session_.source().name(), difference));
  };
  vocab_ = vocab;
  const Tokenizer* const own = session_.tokenizer();
  if (own == nullptr || target == nullptr) {
    const std::int32_t size = session_.model().plan.vocab;
    if (size != vocab) fail(fmt::format("{} tokens, not {}", size, vocab));
    return;
  }
  // One of them may have more tokens that no text becomes.
  for (std::int32_t i = 0; i < std::min(own->size(), target->size()); ++i) {
    const std::string_view here = own->piece(TokenId{i}), there = target->piece(TokenId{i});
    if (here == there) continue;
    fail(fmt::format("token {} is {}, not {}", i, quote_name(here), quote_name(there)));
  }
}

/// To continue what is known by as many tokens as are wanted and there are positions for.
std::optional<Request> DraftModel::request_of(const DraftJob& job) const {
  const Tokenizer* const own = session_.tokenizer();
  const std::int32_t size = session_.model().plan.vocab;
  const TokenId end{own == nullptr ? size : std::min(own->size(), size)};
  const auto known = static_cast<std::int32_t>(job.tokens.size());
  Request request;
  request.max_tokens = std::min(job.most, session_.memory().length_max - known);
  request.prompt.assign(job.tokens.begin(), job.tokens.end());
  if (job.guesses > 1) request.sampling.logprobs = job.guesses;
  if (request.max_tokens <= 0 ||
      std::ranges::any_of(request.prompt, [&](TokenId token) { return token >= end; })) {
    return std::nullopt;
  }
  return request;
}

void DraftModel::run() {
  while (!session_.engine().idle()) session_.engine().step();
}

void DraftModel::prepare(std::span<const DraftJob> jobs) {
  DraftSink sink;
  for (const DraftJob& job : jobs) {
    if (!prepared_.insert(job.sequence).second) continue;
    std::optional<Request> request = request_of(job);
    if (!request) continue;
    request->prompt.pop_back();
    request->prefill_only = true;
    if (!request->prompt.empty()) session_.engine().submit(std::move(*request), sink);
  }
  run();
}

void DraftModel::draft(std::span<DraftJob> jobs) {
  DraftSink sink;
  for (DraftJob& job : jobs) {
    std::optional<Request> request = request_of(job);
    if (request) sink.add(session_.engine().submit(std::move(*request), sink), job);
  }
  run();
  for (DraftJob& job : jobs) {
    const auto end =
        std::ranges::find_if(job.drafts, [&](TokenId token) { return token >= TokenId{vocab_}; });
    job.drafts.erase(end, job.drafts.end());
    if (job.likely.size() > job.drafts.size()) job.likely.resize(job.drafts.size());
    for (SampledToken& draft : job.likely) {
      const TopLogprobs all = std::exchange(draft.top, {});
      for (const TokenLogprob& other : all) {
        if (other.token < TokenId{vocab_}) draft.top.push_back(other);
      }
    }
  }
}

}  // namespace hyb::app
