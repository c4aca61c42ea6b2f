#include "app/request/template_probe.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/options/options.h"
#include "app/request/model_texts.h"
#include "app/request/thoughts.h"
#include "core/base/error.h"

namespace hyb::app {

namespace {

/// A word that is in no template by chance.
constexpr const char* odd_word = "qzxvj";

Json message(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

/// A first question.
Json hello() { return Json::array({message("user", "Hello")}); }

/// Returns an answer as a thinking model would give it: where the prompt has begun the thought, it
/// continues there.
std::string answer_to(const AnswerStart& start) {
  const ThoughtMarkers& markers = start.markers;
  return fmt::format(
      "{}Two and two.\n{}{}\n\nFour.",
      start.opening.empty() ? fmt::format("{}{}\n", markers.begin, markers.name) : "", markers.end,
      markers.answer);
}

/// Some templates put the space there that the model would have begun its answer with.
bool goes_on(std::string_view text, std::string_view prompt, std::string_view answer) {
  if (!text.starts_with(prompt)) return false;
  text.remove_prefix(prompt.size());
  if (!answer.starts_with(' ') && text.starts_with(' ')) text.remove_prefix(1);
  return text.starts_with(answer);
}

/// Renders, or nothing where the template refuses what it was not made for.
class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const Tokenizer& tokenizer)
      : chat_template_(chat_template), tokenizer_(tokenizer) {}

  std::optional<Rendered> rendered(const Json& messages, const Json& variables) const {
    try {
      return render_chat(chat_template_, tokenizer_,
                         {.messages = messages, .variables = variables});
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  /// The prompt of a first question; empty where it is refused.
  std::string prompt(const Json& variables) const {
    const auto made = rendered(hello(), variables);
    return made ? made->text() : std::string();
  }

  bool shows_odd_word(const Json& messages, const Json& variables) const {
    const auto made = rendered(messages, variables);
    return made && made->text().find(odd_word) != std::string::npos;
  }

  bool takes_reasoning() const {
    Json messages = hello();
    messages.push_back(message("assistant", "Four."));
    messages.back()["reasoning_content"] = odd_word;
    return shows_odd_word(messages, {{"add_generation_prompt", false}});
  }

  bool takes_tools() const {
    const Json parameters = {{"type", "object"}, {"properties", Json::object()}};
    const Json function = {
        {"name", odd_word}, {"description", "A tool."}, {"parameters", parameters}};
    const Json tool = {{"type", "function"}, {"function", function}};
    return shows_odd_word(hello(), {{"tools", Json::array({tool})}});
  }

  bool begins_thought() const {
    const auto made = rendered(hello(), Json::object());
    return made && !opening_of(*made, thought_markers_of(tokenizer_)).empty();
  }

 private:
  const ChatTemplate& chat_template_;
  const Tokenizer& tokenizer_;
};

}  // namespace

PlacementPrior placement_prior(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const Probe probe(chat_template, tokenizer);
  const bool reasoning = probe.takes_reasoning();
  const ThoughtMarkers markers = thought_markers_of(tokenizer);
  Json messages = Json::array();
  std::string before, answer;
  for (int turn = 1; turn <= 3; ++turn) {
    messages.push_back(message("user", "What is two and two?"));
    const auto made = probe.rendered(messages, Json::object());
    if (!made) return PlacementPrior::unknown;
    const std::string prompt = made->text();
    if (turn > 1 && !goes_on(prompt, before, answer)) {
      // Some keep the thinking of the last answer only: then either end has its use.
      return turn == 2 ? PlacementPrior::answers_change : PlacementPrior::unknown;
    }
    before = prompt;
    const AnswerStart start = {
        .may_think = true, .opening = opening_of(*made, markers), .markers = markers};
    answer = answer_to(start);
    messages.push_back(assistant_message(answer, start, reasoning));
  }
  return PlacementPrior::answers_stay;
}

std::string_view name_of(Thinking thinking) {
  constexpr std::array<std::string_view, 4> names = {"none", "on", "off", "always"};
  return names[static_cast<std::size_t>(thinking)];
}

TemplateTraits template_traits(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const Probe probe(chat_template, tokenizer);
  const std::string off = probe.prompt(think_variables(false));
  TemplateTraits traits{.obeys_think = off != probe.prompt(think_variables(true)),
                        .takes_reasoning = probe.takes_reasoning(),
                        .takes_tools = probe.takes_tools()};
  if (traits.obeys_think) {
    traits.thinking = probe.prompt(Json::object()) == off ? Thinking::off : Thinking::on;
  } else if (probe.begins_thought()) {
    traits.thinking = Thinking::always;
  }
  return traits;
}

bool takes_reasoning(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  return Probe(chat_template, tokenizer).takes_reasoning();
}

std::string_view name_of(Think think) { return think ? word_of(words::on_off, *think) : "default"; }

std::optional<Think> parse_think(std::string_view word) {
  for (const Think think : {Think(true), Think(false), Think()}) {
    if (word == name_of(think)) return think;
  }
  return std::nullopt;
}

Json think_variables(Think think) {
  Json variables = Json::object();
  if (think) variables = {{"enable_thinking", *think}, {"thinking", *think}};
  return variables;
}

void check_think(Think think, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                 std::string_view flag) {
  if (!think) return;
  const TemplateTraits traits = template_traits(chat_template, tokenizer);
  if (traits.obeys_think) return;
  const bool always = traits.thinking == Thinking::always;
  throw Error(ErrorKind::usage,
              fmt::format("{}: the model's chat template reads neither enable_thinking nor "
                          "thinking, so it would change nothing{}",
                          flag,
                          always ? "; it begins every answer with a thought, unless the system "
                                   "prompt has a word against it (such as /no_think)"
                                 : ""));
}

void check_think_alone(Think think, const Json& body, const std::string& file) {
  const Json variables = think_variables(think);
  const auto says = [&](const Json& names) {
    for (const auto& [name, value] : variables.items()) {
      if (names.contains(name)) return true;
    }
    return false;
  };
  const auto arguments = body.find("chat_template_kwargs");
  if (!says(body) && (arguments == body.end() || !says(*arguments))) return;
  throw Error(ErrorKind::usage, "--think: " + file + " sets it, too; leave one out");
}

void check_think(Think think, const ModelSource& source) {
  if (!think) return;
  const ModelTexts texts = read_texts(source);
  check_think(think, need_chat_template(texts, source), need_tokenizer(texts, source), "--think");
}

}  // namespace hyb::app
