#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/environment.h"
#include "app/options.h"
#include "app/prompt.h"
#include "app/ui/process.h"
#include "app/ui/terminal.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/io/file.h"

namespace hyb::app {
namespace {

struct RenderFlags {
  std::string model = "demo";
  TextInput input;
  std::string system;
  Think think;
  std::string messages;
  std::string template_file;
  bool json = false;
  bool tokens = false;
  bool no_generation_prompt = false;
};

/// {"messages": [...], ...other variables...}, or the array alone.
ChatPrompt read_messages(const std::string& file) {
  const std::string text = file == "-" ? read_stdin() : read_whole_file(file, std::size_t{1} << 30);
  Json json = parse_json(text, file == "-" ? "stdin" : file, {.depth_max = 256});
  if (json.is_array()) return {.messages = std::move(json), .variables = Json::object()};
  if (!json.is_object() || !json.contains("messages")) {
    throw Error(ErrorKind::usage, file + ": neither an array of messages nor an object with one");
  }
  ChatPrompt prompt{.messages = json["messages"], .variables = Json::object()};
  for (const auto& [key, value] : json.items()) {
    if (key != "messages") prompt.variables[key] = value;
  }
  return prompt;
}

/// --think with a file that sets it, too.
void check_alone(const RenderFlags& options, const Json& variables) {
  if (!options.think) return;
  const Json variable = think_variables(options.think);
  const auto says = [&](const Json& names) {
    for (const auto& [name, value] : variable.items()) {
      if (names.contains(name)) return true;
    }
    return false;
  };
  const auto arguments = variables.find("chat_template_kwargs");
  if (!says(variables) && (arguments == variables.end() || !says(*arguments))) return;
  throw Error(ErrorKind::usage, "--think: " + options.messages + " sets it, too; leave one out");
}

ChatPrompt prompt_of(const RenderFlags& options) {
  if (!options.messages.empty()) return read_messages(options.messages);
  ChatPrompt prompt{.messages = Json::array(), .variables = Json::object()};
  const std::string text = read_text(options.input);
  check_utf8(text, "the prompt");
  check_utf8(options.system, "the system prompt");
  if (!options.system.empty()) {
    prompt.messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  prompt.messages.push_back({{"role", "user"}, {"content", text}});
  return prompt;
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
  ChatPrompt prompt = prompt_of(options);
  if (options.no_generation_prompt) prompt.variables["add_generation_prompt"] = false;
  const ModelSource source = ModelSource::find(options.model, read_environment());
  ModelTexts texts = read_texts(source);
  if (!options.template_file.empty()) {
    texts.chat_template = ChatTemplate::parse(
        read_whole_file(options.template_file, std::size_t{16} << 20), options.template_file);
  }
  const Tokenizer& tokenizer = need_tokenizer(texts, source);
  const ChatTemplate& chat_template = need_chat_template(texts, source);
  check_alone(options, prompt.variables);
  check_think(options.think, chat_template, tokenizer, "--think");
  prompt.variables.update(think_variables(options.think));
  if (options.tokens) {
    write_stdout(tokens_text(encode_chat(chat_template, tokenizer, prompt).tokens));
    return 0;
  }
  const Rendered rendered = render_chat(chat_template, tokenizer, prompt);
  const std::string text = options.json ? pieces_text(rendered) : rendered.text();
  write_stdout(is_terminal(Stream::output) ? sanitized(text) : text);
  return 0;
}

Action describe_render(CLI::App& cli) {
  const auto options = std::make_shared<RenderFlags>();  // CLI11 keeps pointers into it
  cli.add_option("model", options->model, "folder, org/name[@revision], or demo")
      ->type_name("MODEL")
      ->capture_default_str();
  add_text_input(cli, options->input);
  CLI::Option* system = cli.add_option("--system", options->system, "the system prompt");
  add_think_option(cli, options->think);
  cli.add_option("--messages", options->messages,
                 "JSON file (- for stdin): messages, or an object with messages, tools, ...")
      ->type_name("FILE")
      ->excludes(system)
      ->excludes(cli.get_option("--prompt"))
      ->excludes(cli.get_option("--prompt-file"));
  cli.add_option("--template", options->template_file, "a template in place of the model's")
      ->type_name("FILE");
  CLI::Option* json = cli.add_flag("--json", options->json,
                                   "pieces with their source: template, person, assistant");
  cli.add_flag("--tokens", options->tokens, "the token ids")->excludes(json);
  cli.add_flag("--no-generation-prompt", options->no_generation_prompt,
               "without the start of the answer");
  return [options] { return render_main(*options); };
}

}  // namespace

const Command render_command = {"render", "Show what the chat template makes of messages",
                                describe_render};

}  // namespace hyb::app
