#include "app/template_probe.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "app/prompt.h"
#include "core/base/error.h"

namespace hyb::app {
namespace {

constexpr std::string_view thinking_begin = "<think>";

Json message(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

std::string rendered(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     const Json& messages) {
  return render_chat(chat_template, tokenizer, {.messages = messages, .variables = Json::object()})
      .text();
}

/// As a model that thinks would answer: where the prompt has begun its thoughts, it goes on there.
std::string answer_to(const std::string& prompt) {
  const std::size_t last = prompt.find_last_not_of(" \n");
  const bool has_begun = last != std::string::npos &&
                         std::string_view(prompt).substr(0, last + 1).ends_with(thinking_begin);
  return std::string(has_begun ? "" : "<think>\n") + "Two and two.\n</think>\n\nFour.";
}

/// Some templates put the space there that the model would have begun its answer with.
bool goes_on(std::string_view text, std::string_view prompt, std::string_view answer) {
  if (!text.starts_with(prompt)) return false;
  text.remove_prefix(prompt.size());
  if (!answer.starts_with(' ') && text.starts_with(' ')) text.remove_prefix(1);
  return text.starts_with(answer);
}

}  // namespace

PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  try {
    Json messages = Json::array();
    std::string before, answer;
    for (int turn = 1; turn <= 3; ++turn) {
      messages.push_back(message("user", "What is two and two?"));
      const std::string prompt = rendered(chat_template, tokenizer, messages);
      if (turn > 1 && !goes_on(prompt, before, answer)) {
        // Some keep the thinking of the last answer only: then either end has its use.
        return turn == 2 ? PlacementPrior::answers_change : PlacementPrior::unknown;
      }
      before = prompt;
      answer = answer_to(prompt);
      messages.push_back(message("assistant", answer));
    }
    return PlacementPrior::answers_stay;
  } catch (const Error&) {
    return PlacementPrior::unknown;  // a template may refuse to render what it was not made for
  }
}

}  // namespace hyb::app
