#include "tests/sim/toy_answer.h"

#include <algorithm>

#include "tests/sim/toy_text.h"

namespace hyb::sim {
namespace {

bool is_stop_token(const Request& request, TokenId token) {
  const auto& stop = request.stop_tokens;
  return !request.ignore_eos && std::find(stop.begin(), stop.end(), token) != stop.end();
}

}  // namespace

ToyAnswer answer_of(const ToyModel& model, const Tokenizer* tokenizer, std::int32_t length_max,
                    const Request& request, std::int32_t choice) {
  SamplingParams sampling = request.sampling;
  sampling.seed += static_cast<std::uint64_t>(choice);
  NaiveToy naive(model);
  for (const TokenId token : request.prompt) naive.push(token);
  const auto room = static_cast<std::size_t>(length_max) - request.prompt.size();
  const std::size_t most =
      request.max_tokens < 0 ? room : std::min(room, static_cast<std::size_t>(request.max_tokens));
  ToyAnswer answer;
  for (;;) {
    const SampledToken sampled = draw(model, naive.output(), sampling, answer.tokens.size());
    if (!sampled.finite) {
      answer.reason = FinishReason::error;
      break;
    }
    answer.tokens.push_back(sampled.token);
    naive.push(sampled.token);
    if (is_stop_token(request, sampled.token)) {
      answer.reason = FinishReason::stop;
      break;
    }
    const bool full = answer.tokens.size() == most;
    if (tokenizer != nullptr) {
      TextStream stream(*tokenizer);
      std::string text;
      for (const TokenId token : answer.tokens) text += stream.push(token);
      if (full) text += stream.flush();
      if (cut_at_stop(text, request.stop).stopped) {
        answer.reason = FinishReason::stop;
        break;
      }
    }
    if (full) break;
  }
  answer.text = text_of(tokenizer, request, answer.tokens);
  return answer;
}

std::string text_of(const Tokenizer* tokenizer, const Request& request,
                    const std::vector<TokenId>& tokens) {
  if (tokenizer == nullptr) return {};
  TextStream stream(*tokenizer);
  std::string text;
  for (const TokenId token : tokens) {
    if (!is_stop_token(request, token)) text += stream.push(token);
  }
  text += stream.flush();
  return cut_at_stop(text, request.stop).text;
}

}  // namespace hyb::sim
