#include "app/verify/passages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "app/request/model_texts.h"
#include "app/ui/process.h"
#include "core/base/error.h"
#include "core/base/strings.h"

namespace hyb::app {
namespace {

std::int32_t count_of(const auto& values) { return static_cast<std::int32_t>(values.size()); }

[[noreturn]] void fail_dry() {
  throw Error(ErrorKind::memory, "verify: the pools are too small for the passages");
}

}  // namespace

/// A passage while it runs.
struct Replay::RunningSequence {
  RunningSequence(const Passage& told, Memory start)
      : passage(&told), memory(std::move(start)), tokens(told.prompt) {}

  std::int32_t length_max() const {
    // The last token is drawn and not run.
    return count_of(passage->prompt) + passage->answer_tokens - 1;
  }
  bool is_done() const { return memory.length() == length_max(); }

  /// Tokens of the next span, at most `room`; stops at `stop`, where a checkpoint is taken.
  std::int32_t next_count(std::int32_t room) {
    std::int32_t count = std::min(count_of(tokens) - memory.length(), room);
    if (memory.length() < stop) count = std::min(count, stop - memory.length());
    if (next_cut < passage->cuts.size()) count = std::min(count, passage->cuts[next_cut++]);
    return count;
  }

  const Passage* passage;
  Memory memory;
  std::vector<TokenId> tokens;
  Trace trace;
  std::size_t next_cut = 0;
  std::int32_t stop = 0;
};

std::string difference(const Trace& expected, const Trace& found) {
  if (expected.tokens.size() != found.tokens.size()) {
    return fmt::format("{} instead of {}", counted(std::ssize(found.tokens), "row"),
                       expected.tokens.size());
  }
  if (expected.logits.size() != found.logits.size()) return "another number of logits";
  const std::size_t rows = expected.tokens.size();
  const std::size_t width = rows == 0 ? 0 : expected.logits.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* a = expected.logits.data() + row * width;
    const float* b = found.logits.data() + row * width;
    if (std::memcmp(a, b, width * sizeof(float)) != 0) {
      float largest = 0;
      for (std::size_t i = 0; i < width; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
      return fmt::format("row {}: logits differ by up to {}", row, largest);
    }
    if (expected.tokens[row] != found.tokens[row]) {
      return fmt::format("row {}: token {} instead of {}", row, index(found.tokens[row]),
                         index(expected.tokens[row]));
    }
  }
  return "";
}

void Replay::advance(std::span<RunningSequence> sequences) {
  if (stop_signal() != 0) throw Error(ErrorKind::runtime, "interrupted");
  Step step;
  step.keep_logits = true;
  std::vector<RunningSequence*> taking_part;
  std::int32_t room = step_tokens_;
  auto waiting = static_cast<std::int32_t>(sequences.size());
  for (RunningSequence& sequence : sequences) {
    --waiting;
    if (sequence.is_done()) continue;
    const std::int32_t count =
        sequence.next_count(room - waiting);  // one token each for the others
    room -= count;
    if (!sequence.memory.reserve(count)) fail_dry();
    const auto begin = static_cast<std::size_t>(sequence.memory.length());
    Span span = {.tokens = std::span<const TokenId>(sequence.tokens)
                               .subspan(begin, static_cast<std::size_t>(count)),
                 .position = sequence.memory.length(),
                 .tables = sequence.memory.tables(),
                 .read_slot = sequence.memory.read_slot(),
                 .write_slot = sequence.memory.write_slot()};
    if (sequence.memory.length() + count == count_of(sequence.tokens)) {
      const std::int32_t prompt = count_of(sequence.passage->prompt);
      span.samples.push_back(
          {.token = count - 1,
           .params = &sequence.passage->sampling,
           .draw = static_cast<std::uint64_t>(count_of(sequence.tokens) - prompt),
           .history = sequence.tokens,
           .prompt_tokens = prompt});
    }
    step.spans.push_back(std::move(span));
    taking_part.push_back(&sequence);
  }
  step.orders = pool_.take_orders();
  const StepResult result = runner_->run(step);

  const std::size_t width =
      result.sampled.empty() ? 0 : result.logits.size() / result.sampled.size();
  std::size_t row = 0;
  for (std::size_t i = 0; i < taking_part.size(); ++i) {
    RunningSequence& sequence = *taking_part[i];
    sequence.memory.keep(count_of(step.spans[i].tokens));
    if (step.spans[i].samples.empty()) continue;
    // A row of NaNs names no token. Any will do to continue: the logits show the fault.
    const SampledToken& sampled = result.sampled[row];
    sequence.tokens.push_back(sampled.finite ? sampled.token : TokenId{0});
    sequence.trace.tokens.push_back(sequence.tokens.back());
    const auto logits = result.logits.begin() + static_cast<std::ptrdiff_t>(row * width);
    sequence.trace.logits.insert(sequence.trace.logits.end(), logits,
                                 logits + static_cast<std::ptrdiff_t>(width));
    ++row;
  }
}

void Replay::play(std::span<RunningSequence> sequences) {
  while (!std::all_of(sequences.begin(), sequences.end(),
                      [](const RunningSequence& v) { return v.is_done(); })) {
    advance(sequences);
  }
}

std::vector<Trace> Replay::run(std::span<const Passage> passages) {
  std::vector<RunningSequence> sequences;
  for (const Passage& passage : passages) {
    std::optional<Memory> memory = pool_.start();
    if (!memory) fail_dry();
    sequences.emplace_back(passage, std::move(*memory));
  }
  play(sequences);
  std::vector<Trace> traces;
  for (RunningSequence& sequence : sequences) traces.push_back(std::move(sequence.trace));
  return traces;
}

Replay::Resumed Replay::run_resumed(const Passage& passage, std::int32_t tokens,
                                    Precision precision) {
  std::optional<Memory> memory = pool_.start();
  if (!memory) fail_dry();
  std::vector<RunningSequence> first;
  first.emplace_back(passage, std::move(*memory));
  RunningSequence& sequence = first.front();
  sequence.stop = tokens;
  while (sequence.memory.length() < tokens) advance(first);
  const std::vector<TokenId> known = sequence.tokens;
  const std::optional<Checkpoint> checkpoint = sequence.memory.checkpoint(precision);
  if (!checkpoint) fail_dry();
  sequence.trace = {};
  play(first);

  std::vector<RunningSequence> later;
  for (int i = 0; i < 2; ++i) {
    std::optional<Memory> resumed = pool_.resume(*checkpoint);
    if (!resumed) fail_dry();
    later.emplace_back(passage, std::move(*resumed)).tokens = known;
  }
  play(later);
  return {.straight_on = std::move(sequence.trace),
          .first = std::move(later[0].trace),
          .second = std::move(later[1].trace)};
}

namespace {

constexpr std::string_view texts[] = {
    "The red box holds a coin and the blue box holds a key. Tom is in the kitchen. The red box",
    "One, two, three, four, five, six, seven, eight, nine, ten. Ten, nine, eight,",
};

}  // namespace

std::vector<Passage> make_passages(const PassageOptions& passage_options,
                                   const Tokenizer* tokenizer) {
  std::mt19937_64 random(passage_options.seed);
  const auto below = [&](std::int32_t count) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(count));
  };
  const std::int32_t prompt_max =
      std::max(1, passage_options.length_max - passage_options.answer_tokens);
  std::vector<std::vector<TokenId>> prompts;
  for (std::int32_t i = 0; i < passage_options.prompts; ++i) {
    // The shortest and the longest are always there.
    const std::int32_t length = i == 0 ? 1 : i == 1 ? prompt_max : 1 + below(prompt_max);
    std::vector<TokenId>& prompt = prompts.emplace_back();
    for (std::int32_t j = 0; j < length; ++j)
      prompt.push_back(TokenId{below(passage_options.vocab)});
  }
  for (const std::string_view text : texts) {
    if (tokenizer == nullptr) break;
    std::vector<TokenId> prompt = tokenizer->encode(text, {.add_special_tokens = true});
    if (prompt.empty()) continue;
    prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(prompt_max)));
    prompts.push_back(std::move(prompt));
  }
  std::vector<Passage> passages;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Passage& passage = passages.emplace_back();
    passage.prompt = std::move(prompts[i]);
    passage.answer_tokens = passage_options.answer_tokens;
    if (i % 2 == 0) continue;
    passage.sampling = {{.temperature = 0.8F,
                         .top_p = 0.95F,
                         .repetition_penalty = 1.1F,
                         .presence_penalty = 0.2F,
                         .seed = passage_options.seed + i}};
  }
  return passages;
}

std::vector<Passage> read_passages(const std::string& file, const PassageOptions& passage_options,
                                   const ModelTexts& texts) {
  InputFile input = InputFile::open(file, "/tmp");
  input.scan(std::nullopt);
  if (!texts.tokenizer) {
    throw Error(ErrorKind::model, "the model has no tokenizer.json, so it takes no requests");
  }
  RequestMaker maker(
      *texts.tokenizer, texts.chat_template ? &*texts.chat_template : nullptr,
      {.defaults = {},
       .limits = {.vocab = passage_options.vocab,
                  .length_max = passage_options.length_max - passage_options.answer_tokens + 1,
                  .has_text = true}});
  const std::size_t lines = input.lines().size();
  const std::size_t count = std::min(lines, static_cast<std::size_t>(passage_options.prompts));
  std::vector<Passage> passages;
  for (std::size_t i = 0; i < count; ++i) {
    const InputLine& at = input.lines()[i * lines / count];
    const RequestLine line = input.read(at);
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorKind::usage, fmt::format("{}: line {}: {}", file, at.number, why));
    };
    if (line.failure) refuse(line.failure->message);
    try {
      Request request = maker.make(line).request;
      passages.push_back({.prompt = std::move(request.prompt),
                          .sampling = std::move(request.sampling),
                          .answer_tokens = passage_options.answer_tokens});
    } catch (const Error& error) {
      refuse(error.what());
    }
  }
  if (passages.empty()) throw Error(ErrorKind::usage, file + ": has no requests");
  return passages;
}

}  // namespace hyb::app
