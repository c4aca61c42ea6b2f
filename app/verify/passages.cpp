#include "app/verify/passages.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "app/batch/input_file.h"
#include "app/batch/request_maker.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::string_view texts[] = {
    "The red box holds a coin and the blue box holds a key. Tom is in the kitchen. The red box",
    "One, two, three, four, five, six, seven, eight, nine, ten. Ten, nine, eight,",
};

}  // namespace

std::vector<Passage> make_passages(const PassageWishes& wishes, const Tokenizer* tokenizer) {
  std::mt19937_64 random(wishes.seed);
  const auto below = [&](std::int32_t count) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(count));
  };
  const std::int32_t prompt_max = std::max(1, wishes.length_max - wishes.answer_tokens);
  std::vector<std::vector<TokenId>> prompts;
  for (std::int32_t i = 0; i < wishes.prompts; ++i) {
    // The shortest and the longest are always there.
    const std::int32_t length = i == 0 ? 1 : i == 1 ? prompt_max : 1 + below(prompt_max);
    std::vector<TokenId>& prompt = prompts.emplace_back();
    for (std::int32_t j = 0; j < length; ++j) prompt.push_back(TokenId{below(wishes.vocab)});
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
    passage.answer_tokens = wishes.answer_tokens;
    if (i % 2 == 0) continue;
    passage.sampling = {.temperature = 0.8F,
                        .top_p = 0.95F,
                        .repetition_penalty = 1.1F,
                        .presence_penalty = 0.2F,
                        .seed = wishes.seed + i,
                        .bias = {}};
  }
  return passages;
}

std::vector<Passage> read_passages(const std::string& file, const PassageWishes& wishes,
                                   const ModelTexts& texts) {
  InputFile input = InputFile::open(file, "/tmp");
  input.scan(std::nullopt);
  if (!texts.tokenizer) {
    throw Error(ErrorKind::model, "the model has no tokenizer.json, so it takes no requests");
  }
  RequestMaker maker(*texts.tokenizer, texts.chat_template ? &*texts.chat_template : nullptr,
                     {.defaults = {},
                      .limits = {.vocab = wishes.vocab,
                                 .length_max = wishes.length_max - wishes.answer_tokens + 1,
                                 .has_text = true},
                      .model = {},
                      .system = {}});
  const std::size_t lines = input.lines().size();
  const std::size_t count = std::min(lines, static_cast<std::size_t>(wishes.prompts));
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
                          .answer_tokens = wishes.answer_tokens,
                          .cuts = {}});
    } catch (const Error& error) {
      refuse(error.what());
    }
  }
  if (passages.empty()) throw Error(ErrorKind::usage, file + ": has no requests");
  return passages;
}

}  // namespace hyb::app
