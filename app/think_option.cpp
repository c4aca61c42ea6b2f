#include "app/think_option.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/model_texts.h"
#include "app/template_probe.h"
#include "core/base/error.h"

namespace hyb::app {

void add_think_option(CLI::App& cli, Think& think) {
  cli.add_option_function<std::string>(
         "--think", [&think](const std::string& word) { think = parse_think(word).value(); },
         "whether the model thinks before it answers: enable_thinking for the chat template, which "
         "decides without it. Some models are told in the system prompt instead (/think, "
         "/no_think)")
      ->check(CLI::IsMember({"on", "off"}));
}

std::string_view name_of(Think think) {
  if (!think) return "default";
  return *think ? "on" : "off";
}

std::optional<Think> parse_think(std::string_view word) {
  for (const Think think : {Think(true), Think(false), Think()}) {
    if (word == name_of(think)) return think;
  }
  return std::nullopt;
}

void add_thoughts_option(CLI::App& cli, std::optional<bool>& shown) {
  cli.add_option_function<std::string>(
         "--thoughts", [&shown](const std::string& word) { shown = word == "show"; },
         "whether thoughts are shown beside answers: show (the default on a terminal) or hide "
         "(where stdout is none, so that it carries answers and nothing else)")
      ->check(CLI::IsMember({"show", "hide"}));
}

Json think_variables(Think think) {
  Json variables = Json::object();
  if (think) variables = {{"enable_thinking", *think}, {"thinking", *think}};
  return variables;
}

void check_think(Think think, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                 std::string_view who) {
  if (!think) return;
  const TemplateTraits traits = template_traits(chat_template, tokenizer);
  if (traits.obeys_think) return;
  const bool always = traits.thinking == Thinking::always;
  throw Error(ErrorKind::usage,
              fmt::format("{}: the model's chat template reads neither enable_thinking nor "
                          "thinking, so it would change nothing{}",
                          who,
                          always ? "; it begins every answer with a thought, unless the system "
                                   "prompt has a word against it (such as /no_think)"
                                 : ""));
}

void check_think(Think think, const ModelSource& source) {
  if (!think) return;
  const ModelTexts texts = read_texts(source);
  check_think(think, need_chat_template(texts, source), need_tokenizer(texts, source), "--think");
}

}  // namespace hyb::app
