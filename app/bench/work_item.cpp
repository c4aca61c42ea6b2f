#include "app/bench/work_item.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/prompt.h"
#include "core/base/error.h"

namespace hyb::app {
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
    throw Error(ErrorKind::usage, fmt::format("corpus: has {} tokens, a prompt of {} is asked for",
                                              tokens, test.input_tokens));
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

}  // namespace hyb::app
