#include "app/bench/request_bench.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "app/bench/bench_setting.h"
#include "app/runtime/model_outline.h"
#include "app/ui/process.h"
#include "core/base/error.h"

namespace hyb::app {

/// `drafter` learns which request is which; null: there is none. It outlives this.
class DraftedRequests final : public ListedRequests {
 public:
  DraftedRequests(std::span<const WorkItem> work, std::vector<double> due_s, RightDrafts* drafter)
      : ListedRequests(work, std::move(due_s)), drafter_(drafter) {}

  void sent(std::size_t i, RequestId id) override {
    if (drafter_ != nullptr) drafter_->add(id, i, item(i).request.prompt);
  }

 private:
  RightDrafts* drafter_;
};

RightDrafts::RightDrafts(std::vector<std::vector<TokenId>> answers, double right_share,
                         std::int32_t vocab, std::uint64_t seed)
    : answers_(std::move(answers)), right_share_(right_share), vocab_(vocab), random_(seed) {}

void RightDrafts::add(RequestId id, std::size_t i, const std::vector<TokenId>& prompt) {
  known_[id] = by_prompt_[prompt] = {.answer = i, .prompt_tokens = prompt.size()};
}

/// Returns what the sequence draws after its first `tokens`.
std::span<const TokenId> RightDrafts::rest_of(const ArrivalOrder& sequence,
                                              std::size_t tokens) const {
  const auto found = known_.find(sequence.request);
  if (found == known_.end() || sequence.choice != 0) return {};
  return rest_of(found->second, tokens);
}

std::span<const TokenId> RightDrafts::rest_of(const Known& known, std::size_t tokens) const {
  const std::vector<TokenId>& answer = answers_[known.answer];
  const std::size_t drawn = tokens - known.prompt_tokens;
  return std::span(answer).subspan(std::min(drawn, answer.size()));
}

/// A draft and what else is tried in its place.
SampledToken RightDrafts::guess(TokenId right, std::int32_t guesses) {
  std::bernoulli_distribution is_right(right_share_);
  SampledToken draft;
  std::int32_t wrong = 0;
  double likelihood = right_share_;
  for (std::int32_t i = 0; i < guesses; ++i) {
    const bool found_before = wrong < i;
    const bool found = !found_before && is_right(random_);
    const TokenId token = found ? right : TokenId{(index(right) + ++wrong) % vocab_};
    draft.top.push_back({.token = token, .logprob = static_cast<float>(std::log(likelihood))});
    likelihood *= 1 - right_share_;
  }
  draft.token = draft.top[0].token;
  draft.logprob = draft.top[0].logprob;
  return draft;
}

void RightDrafts::draft(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const std::span<const TokenId> rest = rest_of(job.sequence, job.tokens.size());
    for (const TokenId right : rest.first(std::min(rest.size(), std::size_t(job.most)))) {
      SampledToken draft = guess(right, job.guesses);
      job.drafts.push_back(draft.token);
      if (job.guesses > 1) job.likely.push_back(std::move(draft));
    }
  }
}

void RightDrafts::replace(const Step& step, std::vector<std::vector<SampledToken>>& drafts) {
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const SampleRow& row = step.spans[i].samples.front();
    const auto prompt = row.history.first(static_cast<std::size_t>(row.prompt_tokens));
    const auto found = by_prompt_.find({prompt.begin(), prompt.end()});
    std::span<const TokenId> rest;
    if (found != by_prompt_.end()) rest = rest_of(found->second, row.history.size());
    drafts[i].resize(std::min(drafts[i].size(), rest.size()));
    for (std::size_t at = 0; at < drafts[i].size(); ++at) {
      drafts[i][at] = guess(rest[at], std::max(1, row.params->logprobs));
    }
  }
}

bool RightDrafts::may_draft_after_next(const ArrivalOrder& sequence,
                                       std::span<const TokenId> tokens) {
  return rest_of(sequence, tokens.size() + 1).size() > 1;
}

ScrambledPool::ScrambledPool(Engine& engine, std::uint64_t seed) {
  constexpr std::size_t sequences_max = 256;
  constexpr std::int32_t pages_max = 4;
  constexpr std::size_t one_stays_of = 32;
  MemoryPool& pool = engine.pool();
  std::mt19937_64 random(seed);
  std::vector<Memory> all;
  // A quarter of the memory at most: what is held must not make the rest scarce.
  while (all.size() < sequences_max &&
         pool.superblocks().free() > pool.layout().superblocks / 4 * 3) {
    std::optional<Memory> memory = pool.start();
    if (!memory) break;
    const auto pages = static_cast<std::int32_t>(random() % pages_max) + 1;
    const std::int32_t tokens = std::max(1, pages * pool.layout().page_tokens);
    if (!memory->reserve(tokens)) break;
    all.push_back(std::move(*memory));
  }
  if (all.empty()) {
    throw Error(ErrorKind::usage, "--scramble: --memory-mode flat has no superblocks to scatter");
  }
  std::shuffle(all.begin(), all.end(), random);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % one_stays_of == 0) held_.push_back(std::move(all[i]));
  }
  all.clear();
  engine.carry_out_orders();
}

namespace {

constexpr std::uint64_t warm_up_repetition = ~std::uint64_t{0};

std::size_t bytes_in_use(const PoolUsage& usage) {
  return usage.total() - usage.free_bytes - usage.idle_bytes;
}

/// "2 of 10 requests failed: ..."; the first decides what kind of failure it is.
std::string failures_of(RequestRow& row) {
  std::size_t failed = 0, all = 0;
  std::string first;
  for (const Repetition& one : row.repetitions) {
    all += one.records.size();
    for (const RequestRecord& record : one.records) {
      if (record.is_answered()) continue;
      if (failed++ > 0) continue;
      first = record.error;
      row.failure = record.is_refused ? ErrorKind::memory : ErrorKind::runtime;
    }
  }
  return failed == 0 ? "" : fmt::format("{} of {} requests failed: {}", failed, all, first);
}

}  // namespace

RequestBench::RequestBench(Session& session, Probes& probes, RequestBenchOptions options)
    : session_(session),
      probes_(probes),
      options_(std::move(options)),
      meter_(session.runner(), session.roofline()),
      card_(options_.card) {
  meter_.redraft([this](const Step& step, auto& drafts) {
    if (drafter_) drafter_->replace(step, drafts);
  });
}

ReuseOptions RequestBench::reuse_for(const RequestCase& test) const {
  ReuseOptions reuse = options_.reuse;
  if (test.policy.empty()) return reuse;
  reuse.prefixes = test.policy != no_policy;
  reuse.eviction = value_of(words::eviction, test.policy).value_or(reuse.eviction);
  return reuse;
}

LoadResult RequestBench::run_work(const RequestCase& test, RequestSource& source,
                                  const std::function<void(std::size_t)>& progress) {
  LoadDriverOptions load;
  load.concurrency_max = test.concurrency;
  load.is_stopped = [] { return stop_signal() != 0; };
  load.progress = progress;
  return run_load(session_.engine(), source, timer_, load);
}

/// Short requests whose answers end one after the other: steps of every number of sequences come
/// up, twice, which is when a card records them.
void RequestBench::warm_up(const RequestCase& test, std::uint64_t number) {
  constexpr std::int32_t prompt_max = 512, answer_min = 4;
  options_.progress("warm-up");
  const std::int32_t at_once = test.concurrency > 0 ? test.concurrency : 8;
  RequestCase shorter = test;
  shorter.dataset = Dataset::random;
  shorter.prompts = options_.warm_up_requests > 0 ? options_.warm_up_requests : at_once;
  shorter.system_tokens = 0;
  shorter.input_tokens = std::clamp(test.input_tokens, 1, prompt_max);
  shorter.output_tokens = answer_min;
  const DrawSeed seed = {options_.seed, number, warm_up_repetition};
  std::vector<WorkItem> work = work_of(shorter, options_.material, seed);
  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].request.max_tokens = answer_min + 2 * static_cast<std::int32_t>(i);
    work[i].request.ignore_eos = true;
  }
  ListedRequests source(work);
  static_cast<void>(run_work(test, source, [](std::size_t) {}));
}

/// Every prefix once.
void RequestBench::prime(const RequestCase& test, const std::vector<WorkItem>& work) {
  std::set<std::vector<TokenId>> known;
  std::vector<WorkItem> prefixes;
  for (const WorkItem& item : work) {
    if (item.primed_tokens < 1) continue;
    const auto begin = item.request.prompt.begin();
    const auto [prefix, is_new] = known.emplace(begin, begin + item.primed_tokens);
    if (!is_new) continue;
    WorkItem first;
    first.request.prompt = *prefix;
    first.request.prefill_only = true;
    prefixes.push_back(std::move(first));
  }
  ListedRequests source(prefixes);
  static_cast<void>(run_work(test, source, [](std::size_t) {}));
}

std::vector<WorkItem> RequestBench::prepare(const RequestCase& test, const DrawSeed& seed) {
  std::vector<WorkItem> work = work_of(test, options_.material, seed);
  if (test.condition == Condition::warm) {
    options_.progress("priming");
    prime(test, work);
  } else if (test.condition == Condition::turn_2) {
    options_.progress("first turns");
    ListedRequests first(work);
    static_cast<void>(run_work(test, first, [](std::size_t) {}));
    work = next_turns(std::move(work), first.answers(), options_.question_tokens, options_.material,
                      seed);
  }
  return work;
}

/// The work of the repetition, run without drafts: what it answers is what it will answer.
void RequestBench::learn_answers(const RequestCase& test, const DrawSeed& seed) {
  session_.restart_engine(reuse_for(test), meter_, {});
  work_ = prepare(test, seed);
  options_.progress("answers without drafts");
  ListedRequests source(work_);
  static_cast<void>(run_work(test, source, [](std::size_t) {}));
  constexpr std::uint64_t drafts = 1001;
  drafter_ = std::make_unique<RightDrafts>(source.answers(), *test.right_drafts(),
                                           options_.material.vocab, seed.generator(drafts)());
}

SpeculationOptions RequestBench::speculation_for(const RequestCase& test) const {
  if (test.spec_acceptance == no_drafts) return {};
  SpeculationOptions speculation = session_.speculation();
  if (drafter_ && !speculation.by_model) speculation.drafter = drafter_.get();
  return speculation;
}

EngineEvents RequestBench::events() const {
  return app::events_of(session_.engine().usage(), session_.runner().graphs_recorded(),
                        session_.runner().graphs_replayed());
}

void RequestBench::watch_memory(RequestRow& row) {
  constexpr std::chrono::milliseconds between_looks{100};
  const Timer::TimePoint now = timer_.now();
  if (now < next_look_) return;
  next_look_ = now + between_looks;
  PoolUsage usage = session_.engine().usage().pool;
  if (bytes_in_use(usage) >= bytes_in_use(row.fullest)) row.fullest = std::move(usage);
}

std::span<const ReplayRequest> RequestBench::trace_of(const RequestCase& test) const {
  const std::span<const ReplayRequest> all = options_.trace;
  return test.prompts > 0 ? all.first(std::min(all.size(), std::size_t(test.prompts))) : all;
}

std::unique_ptr<RequestSource> RequestBench::source_of(const RequestCase& test,
                                                       const DrawSeed& seed) {
  constexpr std::uint64_t arrivals = 1000;
  if (test.dataset == Dataset::trace) {
    return std::make_unique<TraceRequests>(trace_of(test),
                                           TraceOptions{.terms = options_.material.terms,
                                                        .vocab = options_.material.vocab,
                                                        .uses_times = options_.trace_times});
  }
  work_ = prepare(test, seed);
  return std::make_unique<DraftedRequests>(
      work_,
      arrival_times(work_.size(), test.request_rate, options_.burstiness,
                    seed.generator(arrivals)()),
      drafter_.get());
}

bool RequestBench::measure_load(RequestRow& row, RequestSource& source) {
  const EngineEvents before = events();
  const SpeculationStats drafts_before = session_.engine().usage().speculation;
  static_cast<void>(meter_.take_totals());
  next_look_ = {};
  session_.engine().record(options_.recorder);
  card_.begin();
  LoadResult result = run_work(row.test, source, [&](std::size_t ended) {
    options_.progress(fmt::format("{} of {} requests", ended, source.size()));
    watch_memory(row);
  });
  CardFigures card = card_.end();
  session_.engine().record(nullptr);
  next_look_ = {};
  watch_memory(row);
  if (result.is_interrupted) return false;
  Repetition one = {.records = std::move(result.records),
                    .events = events() - before,
                    .speculation = session_.engine().usage().speculation - drafts_before,
                    .steps = meter_.take_totals(),
                    .card = std::move(card)};
  one.metrics = metrics_of(one.records, result.duration_s, options_.metrics);
  row.repetitions.push_back(std::move(one));
  return true;
}

/// The sensors of a card are left out: they would read what prepares the prefixes, too.
bool RequestBench::measure_policy(RequestRow& row) {
  Repetition one;
  EngineEvents before;
  const std::unique_ptr<ReusePrediction> prediction =
      options_.predict(row.test.policy, session_.memory().pool_bytes());
  const SimulatedRun run = {
      .engine = session_.engine(),
      .trace = trace_of(row.test),
      .options = {.terms = options_.material.terms, .vocab = options_.material.vocab},
      .prediction = *prediction,
      .measure =
          [&](bool is_measured) {
            if (!is_measured) {
              one.steps += meter_.take_totals();
              one.events += events() - before;
              return;
            }
            static_cast<void>(meter_.take_totals());
            before = events();
          },
      .progress =
          [&](std::size_t ended) {
            options_.progress(fmt::format("{} of {} requests", ended, options_.trace.size()));
            watch_memory(row);
          },
      .is_stopped = [] { return stop_signal() != 0; }};
  LoadResult result = run_simulated(run, timer_);
  if (result.is_interrupted) return false;
  one.records = std::move(result.records);
  one.metrics = metrics_of(one.records, result.duration_s, options_.metrics);
  row.repetitions.push_back(std::move(one));
  return true;
}

bool RequestBench::repeat(RequestRow& row, const DrawSeed& seed) {
  if (row.test.right_drafts()) learn_answers(row.test, seed);
  session_.restart_engine(reuse_for(row.test), meter_, speculation_for(row.test));
  std::optional<ScrambledPool> pieces;
  if (options_.scramble) pieces.emplace(session_.engine(), *options_.scramble + seed.repetition);
  if (is_simulated(row.test.policy)) return measure_policy(row);
  const std::unique_ptr<RequestSource> source = source_of(row.test, seed);
  return stop_signal() == 0 && measure_load(row, *source);
}

void RequestBench::get_ready(const RequestCase& test, std::uint64_t number) {
  if (session_.settings().lanes) session_.set_disaggregated(test.lanes != colocated_lanes);
  session_.runner().set_graphs(test.graphs.value_or(models::GraphOptions{}));
  session_.restart_engine(reuse_for(test), meter_, session_.speculation());
  drafter_.reset();
  warm_up(test, number);
}

void RequestBench::measure(RequestRow& row, std::uint64_t number) {
  get_ready(row.test, number);
  probes_.forget();
  // A-B-B-A: what drifts in the machine meets measurements and probes alike.
  bool go_on = stop_signal() == 0;
  for (std::int32_t i = 0; i < options_.repetitions && go_on; ++i) {
    if (i % 2 == 0) probes_.run();
    go_on = repeat(row, {options_.seed, number, static_cast<std::uint64_t>(i)});
    if (i % 2 == 1 || i + 1 == options_.repetitions) probes_.run();
    go_on = go_on && stop_signal() == 0;
  }
  row.ceilings = probes_.best();
}

/// Whatever keeps a row from being measured becomes what the row says.
void RequestBench::attempt(RequestRow& row, const std::function<void()>& measure) const {
  try {
    measure();
  } catch (const Error& error) {
    row.status = error.what();
    row.failure = error.kind();
  } catch (const std::bad_alloc&) {
    row.status = "does not fit: the machine is out of memory";
  }
}

void RequestBench::settle(RequestRow& row) const {
  if (row.status != "ok") return;
  const std::string failures = failures_of(row);
  if (std::ssize(row.repetitions) < options_.repetitions) {
    row.status = fmt::format("interrupted: {} of {} repetitions", row.repetitions.size(),
                             options_.repetitions);
  } else if (!failures.empty()) {
    row.status = failures;
  }
}

void RequestBench::check_lengths(std::span<const RequestCase> cases) const {
  const std::int64_t room = session_.engine().length_max();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t number = 0; number < cases.size(); ++number) {
    if (cases[number].dataset == Dataset::trace) return;
    try {
      for (const WorkItem& item :
           work_of(cases[number], options_.material, {.seed = options_.seed, .row = number})) {
        least = std::min(least, std::ssize(item.request.prompt));  // an answer ends at the limit
      }
    } catch (const Error&) {  // its row says why there are no requests
      return;
    }
    if (least < room) return;
  }
  throw Error(ErrorKind::memory,
              fmt::format("no request fits: the shortest prompt has {}, and the context {}; give a "
                          "larger --context or --memory, or shorter requests",
                          counted(least, "token"), room));
}

RequestRow RequestBench::run(const RequestCase& test, std::uint64_t number) {
  RequestRow row;
  row.test = test;
  row.started = utc_now();
  attempt(row, [&] { measure(row, number); });
  settle(row);
  return row;
}

std::vector<RequestRow> RequestBench::run_interleaved(
    std::span<const RequestCase> cases, const std::function<void(std::size_t)>& announce) {
  std::vector<RequestRow> rows;
  for (const RequestCase& test : cases) rows.emplace_back().test = test;
  probes_.forget();
  for (std::int32_t i = 0; i < options_.repetitions; ++i) {
    for (std::size_t number = 0; number < rows.size() && stop_signal() == 0; ++number) {
      RequestRow& row = rows[number];
      if (row.status != "ok") continue;
      announce(number);
      if (i == 0) row.started = utc_now();
      attempt(row, [&] {
        get_ready(row.test, number);
        probes_.run();
        static_cast<void>(repeat(row, {options_.seed, number, static_cast<std::uint64_t>(i)}));
      });
    }
  }
  std::erase_if(rows, [](const RequestRow& row) { return row.started.empty(); });
  for (RequestRow& row : rows) {
    row.ceilings = probes_.best();
    settle(row);
  }
  return rows;
}

}  // namespace hyb::app
