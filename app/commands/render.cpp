#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/machine/environment.h"
#include "app/options/options.h"
#include "app/request/messages.h"
#include "app/request/model_texts.h"
#include "app/request/prompt.h"
#include "app/request/request_body.h"
#include "app/request/template_probe.h"
#include "app/request/text_input.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/log.h"

namespace hyb::app {
namespace {

struct RenderFlags {
  std::string model = "demo";
  TextInput input;
  std::string system;
  Think think;
  std::string messages;
  std::string chat_template;
  bool json = false;
  bool tokens = false;
  bool no_generation_prompt = false;
};

Json body_of(const RenderFlags& options) {
  if (!options.messages.empty()) return read_messages(options.messages);
  return question_body(options.system, read_text(options.input));
}

const char* source_name(TextSource source) {
  switch (source) {
    case TextSource::tmpl:
      return "template";
    case TextSource::assistant:
      return "assistant";
    case TextSource::person:
      break;
  }
  return "person";
}

std::string pieces_text(const Rendered& rendered) {
  Json pieces = Json::array();
  for (const RenderedPiece& piece : rendered.pieces) {
    pieces.push_back({{"source", source_name(piece.source)}, {"text", piece.text}});
  }
  return to_text(pieces) + "\n";
}

std::string tokens_text(const std::vector<TokenId>& tokens) {
  Json ids = Json::array();
  for (const TokenId token : tokens) ids.push_back(index(token));
  return to_text(ids) + "\n";
}

int render_main(const RenderFlags& options) {
  const Json body = body_of(options);
  check_think_alone(options.think, body, options.messages);
  Request as_run;
  apply_body(body, as_run);  // refuses what run and batch refuse
  const ModelSource source =
      options.messages.empty()
          ? find_model(options.input, options.model, options.chat_template)
          : ModelSource::find(options.model, read_environment(), options.chat_template);
  const ModelTexts texts = read_texts(source);
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  const ChatTemplate& chat_template = need_chat_template(texts, source);
  check_think(options.think, chat_template, tokenizer, "--think");
  for (const std::string& text : unread_arguments(body, chat_template)) log::warning(text);
  ChatPrompt prompt = chat_prompt(body, body["messages"], options.think, chat_template);
  if (options.no_generation_prompt) prompt.variables["add_generation_prompt"] = false;
  if (options.tokens) {
    write_output(tokens_text(encode_chat(chat_template, tokenizer, prompt).tokens));
    return 0;
  }
  const Rendered rendered = render_chat(chat_template, tokenizer, prompt);
  const std::string text = options.json ? pieces_text(rendered) : rendered.text();
  write_output(text);
  return 0;
}

Action describe_render(CLI::App& cli) {
  const auto options = std::make_shared<RenderFlags>();  // CLI11 keeps pointers into it
  add_text_input(cli, options->input, options->model);
  CLI::Option* system = add_system_option(cli, options->system, "the system prompt");
  add_think_option(cli, options->think);
  cli.add_option("--messages", options->messages,
                 "JSON file (-: stdin) of messages, or an object with messages, tools and so on")
      ->type_name("FILE")
      ->excludes(system)
      ->excludes(cli.get_option("--system-file"))
      ->excludes(cli.get_option("--prompt"))
      ->excludes(cli.get_option("--prompt-file"));
  add_chat_template_option(cli, options->chat_template, ",--template");
  CLI::Option* json = cli.add_flag("--json", options->json,
                                   "print pieces with their source: template, person or assistant");
  cli.add_flag("--tokens", options->tokens, "print the token ids")->excludes(json);
  cli.add_flag("--no-generation-prompt", options->no_generation_prompt,
               "leave out the start of the answer");
  return [options] { return render_main(*options); };
}

}  // namespace

const Command render_command = {"render", "Show what the chat template makes of messages",
                                describe_render};

}  // namespace hyb::app
