#include "tests/sim/toy_model.h"

#include <algorithm>

namespace hyb::sim {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 29);
}

std::uint64_t advance(std::uint64_t recurrent, TokenId token, std::uint64_t attended) {
  return mix(mix(recurrent, static_cast<std::uint64_t>(index(token)) + 1), attended);
}

std::uint64_t make_key(TokenId token, std::uint64_t attended, std::uint64_t recurrent) {
  return mix(mix(attended, static_cast<std::uint64_t>(index(token)) + 11), recurrent);
}

namespace {

bool is_allowed(std::span<const std::uint32_t> mask, TokenId token) {
  return mask.empty() || (mask[0] >> index(token) & 1U) != 0;
}

}  // namespace

SampledToken draw(const ToyModel& model, std::uint64_t output, const SamplingParams& params,
                  std::uint64_t count, std::span<const std::uint32_t> mask) {
  std::uint64_t number = mix(output, 5);
  if (params.temperature > 0.0F) number = mix(mix(number, params.seed), count);
  SampledToken sampled;
  sampled.token = TokenId{static_cast<std::int32_t>(number % static_cast<unsigned>(model.vocab))};
  sampled.finite =
      model.nan_every == 0 || mix(output, 6) % static_cast<unsigned>(model.nan_every) != 0;
  std::int32_t tries = 0;
  for (; tries < model.vocab && !is_allowed(mask, sampled.token); ++tries) {
    sampled.token = TokenId{(index(sampled.token) + 1) % model.vocab};
  }
  sampled.finite = sampled.finite && tries < model.vocab;
  sampled.logprob = -static_cast<float>(output % 1024);
  for (std::int32_t i = 0; i < params.logprobs; ++i) {
    sampled.top.push_back({TokenId{i}, -static_cast<float>(mix(output, 7) % 1024)});
  }
  return sampled;
}

void NaiveToy::push(TokenId token) {
  const auto position = static_cast<std::int32_t>(keys_.size());
  const auto key = [&](std::int32_t i) { return keys_[static_cast<std::size_t>(i)]; };
  const std::uint64_t attended = model_.attention ? attend(position, key) : 0;
  if (model_.recurrence) recurrent_ = advance(recurrent_, token, attended);
  keys_.push_back(make_key(token, attended, recurrent_));
}

std::uint64_t NaiveToy::output() const {
  const auto key = [&](std::int32_t i) { return keys_[static_cast<std::size_t>(i)]; };
  return output_of(model_, static_cast<std::int32_t>(keys_.size()), recurrent_, key);
}

const Tokenizer& toy_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::from_json(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "post_processor": null,
    "added_tokens": [{"id": 10, "content": "<end>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "ba": 4, "Ã": 5, "©": 6, "â": 7, "Ĥ": 8,
                        "¬": 9, "<end>": 10, "aab": 11, "cab": 12, "bb": 13, "aa": 14, "bca": 15},
              "merges": []}
  })",
                                                          "toy tokenizer");
  return tokenizer;
}

ConstraintCache& toy_rules() {
  thread_local ConstraintCache rules(toy_tokenizer(), {toy_end}, ToyModel().vocab);
  return rules;
}

std::vector<std::uint32_t> naive_mask(const Request& request, std::span<const TokenId> answer) {
  Constraint* const rule = request.rule.get();
  const bool can_end = rule != nullptr || !request.ignore_eos;
  const bool is_short = can_end && std::ssize(answer) < request.min_tokens;
  if (rule == nullptr && request.allowed.empty() && !is_short) return {};
  std::string text;
  for (const TokenId token : answer) text += toy_tokenizer().bytes_of(token);
  const auto is_right = [&](TokenId token) {
    if (rule == nullptr) {
      return request.allowed.empty() ||
             std::ranges::find(request.allowed, token) != request.allowed.end();
    }
    GrammarMatcher matcher(*rule);
    if (!matcher.accept_bytes(text)) return false;
    if (token == toy_end) return matcher.is_complete();
    return matcher.accept_bytes(toy_tokenizer().bytes_of(token));
  };
  std::uint32_t all = 0, longer = 0;
  for (std::int32_t i = 0; i < ToyModel().vocab; ++i) {
    if (!is_right(TokenId{i})) continue;
    all |= 1U << i;
    const auto& ends = request.stop_tokens;
    if (std::ranges::find(ends, TokenId{i}) == ends.end()) longer |= 1U << i;
  }
  return {is_short && longer != 0 ? longer : all};
}

PlainText cut_at_stop(std::string text, std::span<const std::string> stop) {
  std::size_t end = std::string::npos, begin = 0;
  for (const std::string& string : stop) {
    const std::size_t at = text.find(string);
    if (at == std::string::npos) continue;
    const std::size_t after = at + string.size();
    if (after < end || (after == end && at < begin)) {
      end = after;
      begin = at;
    }
  }
  if (end == std::string::npos) return {std::move(text), false};
  text.resize(begin);
  return {std::move(text), true};
}

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
    const std::vector<std::uint32_t> mask = naive_mask(request, answer.tokens);
    const SampledToken sampled = draw(model, naive.output(), sampling, answer.tokens.size(), mask);
    if (!sampled.finite) {
      answer.reason = FinishReason::error;
      break;
    }
    answer.tokens.push_back(sampled.token);
    naive.push(sampled.token);
    const bool ends_rule = request.rule.get() != nullptr && sampled.token == toy_end;
    if (is_stop_token(request, sampled.token) || ends_rule) {
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
