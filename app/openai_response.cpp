#include "app/openai_response.h"

namespace hyb::app {
namespace {

Json token_json(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string text = tokenizer.decode(std::span(&token, 1), false);
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text}, {"id", index(token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

Json logprobs_json(const Completion& completion, const Tokenizer& tokenizer) {
  if (completion.events.empty()) return nullptr;
  Json content = Json::array();
  for (const TokenEvent& event : completion.events) {
    Json token = token_json(tokenizer, event.token, event.logprob);
    token["top_logprobs"] = Json::array();
    for (const TokenLogprob& likely : event.top) {
      token["top_logprobs"].push_back(token_json(tokenizer, likely.token, likely.logprob));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}};
}

Json message_json(const Completion& completion, const AnswerStart& start) {
  SplitAnswer split = split_answer(completion.text, start);
  Json message = {{"role", "assistant"}, {"content", std::move(split.content)}};
  if (split.reasoning) message["reasoning_content"] = std::move(*split.reasoning);
  return message;
}

Json choice_json(const ResponseHead& head, std::size_t index, const Completion& completion,
                 const Tokenizer& tokenizer) {
  Json choice = {{"index", index}};
  if (head.kind == AnswerKind::chat) {
    choice["message"] = message_json(completion, head.start);
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = logprobs_json(completion, tokenizer);
  choice["finish_reason"] = name_of(completion.reason);
  return choice;
}

}  // namespace

Json response_json(const ResponseHead& head, std::span<const Completion> completions,
                   const Tokenizer& tokenizer) {
  Json choices = Json::array();
  std::int64_t generated = 0, prefilled = 0;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    choices.push_back(choice_json(head, i, completions[i], tokenizer));
    generated += completions[i].usage.completion_tokens;
    prefilled += completions[i].usage.prefilled_tokens;
  }
  // The choices share one prompt: the first one's counts stand for it.
  const Usage first = completions.empty() ? Usage{} : completions[0].usage;
  Json usage = {{"prompt_tokens", first.prompt_tokens},
                {"completion_tokens", generated},
                {"total_tokens", first.prompt_tokens + generated},
                {"reused_tokens", first.reused_tokens},
                {"reused_from", first.reused_from ? Json(name_of(*first.reused_from)) : Json()},
                {"prefilled_tokens", prefilled}};
  if (first.resumed_packed) usage["reused_precision"] = "int8";
  return {{"id", head.id},
          {"object", head.kind == AnswerKind::chat ? "chat.completion" : "text_completion"},
          {"created", head.created_s},
          {"model", head.model},
          {"choices", std::move(choices)},
          {"usage", std::move(usage)}};
}

}  // namespace hyb::app
