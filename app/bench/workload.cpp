#include "app/bench/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "app/request/prompt.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {

std::vector<double> arrival_times(std::size_t count, double rate, double burstiness,
                                  std::uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (count == 0 || std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(std::isinf(burstiness) ? 1.0 : burstiness, 1.0);
  double time = 0;
  for (double& one : times) one = time += std::isinf(burstiness) ? 1.0 : gap(random);
  const double scale = time > 0 ? static_cast<double>(count) / rate / time : 0;
  for (double& one : times) one *= scale;
  return times;
}

namespace {

enum Purpose : std::uint64_t { prompts, prefixes, order, questions };

class Drawer {
 public:
  Drawer(const DrawSeed& seed, Purpose purpose) : random_(seed.generator(purpose)) {}

  std::int32_t below(std::int32_t end) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(end));
  }

  void append(std::vector<TokenId>& tokens, std::int32_t count, std::int32_t vocab) {
    for (std::int32_t i = 0; i < count; ++i) tokens.push_back(TokenId{below(vocab)});
  }

  /// Uniform within `ratio` of `length`; 1 or more.
  std::int32_t length(std::int32_t length, double ratio) {
    const auto spread = static_cast<std::int32_t>(length * ratio);
    return std::max(1, length - spread + (spread > 0 ? below(2 * spread + 1) : 0));
  }

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<std::size_t>(below(static_cast<int>(i)))]);
    }
  }

 private:
  std::mt19937_64 random_;
};

WorkItem item_of(const PromptMaterial& material, std::vector<TokenId> prompt,
                 std::int32_t output_tokens) {
  WorkItem item = {.request = material.terms};
  item.request.prompt = std::move(prompt);
  item.request.max_tokens = output_tokens;
  item.primed_tokens = static_cast<std::int32_t>(item.request.prompt.size()) - 1;
  return item;
}

std::vector<WorkItem> random_work(const RequestCase& test, const PromptMaterial& material,
                                  const DrawSeed& seed) {
  Drawer draw(seed, prompts);
  std::vector<TokenId> shared;
  draw.append(shared, test.system_tokens, material.vocab);
  std::vector<WorkItem> work;
  for (std::int32_t i = 0; i < test.prompts; ++i) {
    std::vector<TokenId> prompt = shared;
    const std::int32_t input = draw.length(test.input_tokens, material.range_ratio);
    const std::int32_t output = draw.length(test.output_tokens, material.range_ratio);
    draw.append(prompt, input, material.vocab);
    work.push_back(item_of(material, std::move(prompt), output));
  }
  return work;
}

std::vector<WorkItem> shared_prefix_work(const RequestCase& test, const PromptMaterial& material,
                                         const DrawSeed& seed) {
  Drawer prefix(seed, prefixes), draw(seed, prompts), deal(seed, order);
  std::vector<WorkItem> work;
  for (std::int32_t group = 0; group < test.groups; ++group) {
    std::vector<TokenId> system;
    prefix.append(system, test.system_tokens, material.vocab);
    for (std::int32_t i = 0; i < test.prompts; ++i) {
      std::vector<TokenId> prompt = system;
      draw.append(prompt, test.input_tokens, material.vocab);
      work.push_back(item_of(material, std::move(prompt), test.output_tokens));
      // The system prompt is a message of its own.
      work.back().request.message_ends = {test.system_tokens};
      work.back().primed_tokens = test.system_tokens;
    }
  }
  deal.shuffle(work);
  return work;
}

std::vector<WorkItem> corpus_work(const RequestCase& test, const PromptMaterial& material,
                                  const DrawSeed& seed) {
  const auto tokens = static_cast<std::int32_t>(material.corpus.size());
  if (tokens < test.input_tokens) {
    throw Error(ErrorKind::usage, fmt::format("corpus: has {}, a prompt needs {}",
                                              counted(tokens, "token"), test.input_tokens));
  }
  Drawer draw(seed, prompts);
  std::vector<WorkItem> work;
  for (std::int32_t i = 0; i < test.prompts; ++i) {
    const auto begin = material.corpus.begin() + draw.below(tokens - test.input_tokens + 1);
    work.push_back(item_of(material, {begin, begin + test.input_tokens}, test.output_tokens));
  }
  return work;
}

/// Without a tokenizer there is no text: as many random tokens as it has words and marks, about.
std::vector<WorkItem> one_prompt(const RequestCase& test, const PromptMaterial& material,
                                 const DrawSeed& seed) {
  constexpr std::int32_t tokens_without_text = 20;
  std::vector<TokenId> prompt;
  if (material.tokenizer != nullptr) {
    prompt = encode_raw(*material.tokenizer, material.text, false);
  } else {
    Drawer(seed, prompts).append(prompt, tokens_without_text, material.vocab);
  }
  return {item_of(material, std::move(prompt), test.output_tokens)};
}

std::vector<WorkItem> file_work(const RequestCase& test, const PromptMaterial& material) {
  std::vector<WorkItem> work;
  for (const Request& request : material.from_file) {
    if (test.prompts > 0 && std::ssize(work) == test.prompts) break;
    work.push_back({.request = request});
    work.back().primed_tokens = static_cast<std::int32_t>(request.prompt.size()) - 1;
  }
  return work;
}

}  // namespace

std::mt19937_64 DrawSeed::generator(std::uint64_t purpose) const {
  const std::array<std::uint64_t, 4> numbers = {seed, row, repetition, purpose};
  std::vector<std::uint32_t> words;
  for (const std::uint64_t number : numbers) {
    words.push_back(static_cast<std::uint32_t>(number));
    words.push_back(static_cast<std::uint32_t>(number >> 32));
  }
  std::seed_seq sequence(words.begin(), words.end());
  return std::mt19937_64(sequence);
}

std::vector<WorkItem> work_of(const RequestCase& test, const PromptMaterial& material,
                              const DrawSeed& seed) {
  switch (test.dataset) {
    case Dataset::random:
      return random_work(test, material, seed);
    case Dataset::generated_shared_prefix:
      return shared_prefix_work(test, material, seed);
    case Dataset::send_one:
      return one_prompt(test, material, seed);
    case Dataset::corpus:
      return corpus_work(test, material, seed);
    case Dataset::file:
      return file_work(test, material);
    case Dataset::trace:
      break;
  }
  throw Error(ErrorKind::runtime, "bench: a trace is no list of prompts");
}

std::vector<WorkItem> next_turns(std::vector<WorkItem> work,
                                 std::span<const std::vector<TokenId>> answers,
                                 std::int32_t question_tokens, const PromptMaterial& material,
                                 const DrawSeed& seed) {
  require(work.size() == answers.size(), "bench: every request was answered or not");
  Drawer draw(seed, questions);
  std::vector<WorkItem> turns;
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (answers[i].empty()) continue;
    Request& request = work[i].request;
    request.prompt.insert(request.prompt.end(), answers[i].begin(), answers[i].end());
    request.message_ends.push_back(static_cast<std::int32_t>(request.prompt.size()));
    draw.append(request.prompt, question_tokens, material.vocab);
    turns.push_back(std::move(work[i]));
  }
  return turns;
}

namespace {

/// The same segment and place: the same token (the finaliser of splitmix64).
TokenId token_at(std::int64_t segment, std::int32_t place, std::int32_t vocab) {
  std::uint64_t bits =
      static_cast<std::uint64_t>(segment) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(place);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return TokenId{static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab))};
}

}  // namespace

std::vector<ReplayRequest> scaled_trace(std::vector<ReplayRequest> trace, std::int32_t scale_down) {
  for (ReplayRequest& request : trace) {
    for (auto* const segments : {&request.prompt, &request.output}) {
      for (Segment& segment : *segments) {
        segment.length = (segment.length + scale_down - 1) / scale_down;
      }
    }
  }
  return trace;
}

TraceRequests::TraceRequests(std::span<const ReplayRequest> trace, TraceOptions options)
    : trace_(trace), options_(std::move(options)), follows_(trace.size()) {
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    for (const Segment& segment : trace[i].prompt) {
      const auto maker = answers_to_come_.find(segment.id);
      if (maker != answers_to_come_.end()) {
        follows_[i] = std::max(follows_[i].value_or(0), maker->second);
      }
      seen.insert(segment.id);
    }
    // What was in an earlier prompt is the same tokens there: it does not change.
    for (const Segment& segment : trace[i].output) {
      if (seen.insert(segment.id).second) answers_to_come_.emplace(segment.id, i);
    }
  }
}

double TraceRequests::due_s(std::size_t i) const {
  return options_.uses_times ? trace_[i].time_s - trace_.front().time_s : 0;
}

void TraceRequests::append(std::vector<TokenId>& tokens, const Segment& segment) const {
  const auto given = given_.find(segment.id);
  const std::int32_t length = segment.length;
  for (std::int32_t place = 0; place < length; ++place) {
    const bool is_given = given != given_.end() && place < std::ssize(given->second);
    tokens.push_back(is_given ? given->second[static_cast<std::size_t>(place)]
                              : token_at(segment.id, place, options_.vocab));
  }
}

Request TraceRequests::request(std::size_t i) {
  Request request = options_.terms;
  for (const Segment& segment : trace_[i].prompt) append(request.prompt, segment);
  request.max_tokens = 0;
  for (const Segment& segment : trace_[i].output) request.max_tokens += segment.length;
  request.max_tokens = std::max(request.max_tokens, 1);
  return request;
}

void TraceRequests::answered(std::size_t i, const Completion& completion) {
  auto next = completion.tokens.begin();
  for (const Segment& segment : trace_[i].output) {
    const auto left = completion.tokens.end() - next;
    const auto end = next + std::min<std::ptrdiff_t>(segment.length, left);
    const auto maker = answers_to_come_.find(segment.id);
    if (maker != answers_to_come_.end() && maker->second == i) {
      given_.try_emplace(segment.id, next, end);
    }
    next = end;
  }
}

}  // namespace hyb::app
