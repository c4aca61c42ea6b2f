#include "core/text/chat_template.h"

#include <algorithm>
#include <mutex>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/json.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/parser.h"
#include "core/text/jinja/value.h"
#include "core/text/message_forms.h"

namespace hyb {
namespace {

using jinja::Fault;
using jinja::FaultKind;

constexpr std::size_t message_bytes_max = 1000;

/// A message from a template, made safe to show in a terminal.
std::string sanitized(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, message_bytes_max)) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F;
    out += control ? '?' : c;
  }
  return out;
}

[[noreturn]] void fail(const jinja::Template& parsed, jinja::Place place, const Fault& fault) {
  if (fault.kind() == FaultKind::raised) {
    throw Error(ErrorKind::usage,
                parsed.name + ": the chat template refuses this input: " + sanitized(fault.what()));
  }
  throw Error(ErrorKind::model, jinja::where(parsed.name, parsed.source, place) +
                                    "template: " + sanitized(fault.what()));
}

std::vector<RenderedPiece> pieces_of(const jinja::MarkedBuffer& buffer) {
  std::vector<RenderedPiece> pieces;
  std::size_t begin = 0;
  for (const jinja::MarkedBuffer::Run& run : buffer.runs()) {
    pieces.push_back({std::string(buffer.bytes().substr(begin, run.end - begin)), run.source});
    begin = run.end;
  }
  return pieces;
}

/// Renders with the variables that `define(runtime, scope)` puts into the root scope.
template <typename Define>
Rendered render_with(const jinja::Template& parsed, const RenderLimits& limits,
                     const std::optional<std::tm>& now, Define define) {
  jinja::Runtime runtime(limits, now);
  jinja::MarkedBuffer& output = runtime.new_buffer();
  jinja::Scope root;
  try {
    define(runtime, root);
  } catch (const Fault& fault) {
    throw Error(ErrorKind::usage, parsed.name + ": template variables: " + fault.what());
  }
  jinja::Place place = 0;
  try {
    jinja::render(parsed, runtime, root, output, place);
  } catch (const Fault& fault) {
    fail(parsed, place, fault);
  }
  return {pieces_of(output)};
}

void check_object(const Json& variables) {
  if (!variables.is_object() && !variables.is_null()) {
    throw Error(ErrorKind::usage, "template variables: must be a JSON object");
  }
}

}  // namespace

std::string Rendered::text() const {
  std::string out;
  for (const RenderedPiece& piece : pieces) out += piece.text;
  return out;
}

struct ChatTemplate::Parts {
  explicit Parts(jinja::Template from) : parsed(std::move(from)) {}

  jinja::Template parsed;
  std::mutex making_forms = {};
  std::optional<MessageForms> forms = {};  ///< since the first rendering
  std::optional<ChatTemplate> with_tools = {};

  Rendered render(const Json& messages, const Json& variables, const RenderLimits& limits,
                  const std::optional<std::tm>& now) const;
  const MessageForms& need_forms();
};

/// Renders messages in the form in which they are.
Rendered ChatTemplate::Parts::render(const Json& messages, const Json& variables,
                                     const RenderLimits& limits,
                                     const std::optional<std::tm>& now) const {
  return render_with(parsed, limits, now, [&](jinja::Runtime& runtime, jinja::Scope& scope) {
    // Variables that the reference always defines.
    scope.set("tools", jinja::Value::none());
    scope.set("documents", jinja::Value::none());
    scope.set("add_generation_prompt", jinja::Value(false));
    const auto define = [&](const Json& members) {
      for (const auto& [name, value] : members.items()) {
        const TextSource source = jinja::source_of_variable(name);
        scope.set(name, jinja::value_from_json(runtime, value, source));
      }
    };
    define(variables);
    const Json* kwargs = nullptr;
    if (const auto found = variables.find("chat_template_kwargs"); found != variables.end()) {
      kwargs = &*found;
    }
    if (kwargs != nullptr && kwargs->is_object()) define(*kwargs);
    scope.set("messages", jinja::messages_from_json(runtime, messages));
  });
}

const MessageForms& ChatTemplate::Parts::need_forms() {
  const RenderLimits trial_limits{.steps_max = 1'000'000, .time_max = std::chrono::seconds(1)};
  const Json variables = {{"bos_token", ""}, {"eos_token", ""}, {"pad_token", ""}};
  // Not std::call_once: exceptions must not pass through the C library, whose unwinder is another.
  const std::lock_guard lock(making_forms);
  if (!forms) {
    forms.emplace([&](const Json& messages) -> std::optional<std::string> {
      try {
        return render(messages, variables, trial_limits, std::nullopt).text();
      } catch (const Error&) {
        return std::nullopt;
      }
    });
  }
  return *forms;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source_text, std::string_view source_name) {
  return ChatTemplate(std::make_unique<Parts>(jinja::parse_template(source_text, source_name)));
}

void ChatTemplate::use_with_tools(ChatTemplate other) {
  parts_->with_tools.emplace(std::move(other));
}

bool ChatTemplate::reads(const std::string& variable) const {
  if (parts_->with_tools && parts_->with_tools->reads(variable)) return true;
  const bool is_for_other = parts_->with_tools && variable == "tools";
  return !is_for_other && parts_->parsed.names.contains(variable);
}

const CallForm* ChatTemplate::call_form() const {
  return parts_->with_tools ? parts_->with_tools->call_form() : parts_->need_forms().call_form();
}

Rendered ChatTemplate::render(const Json& messages, const Json& variables,
                              const RenderLimits& limits, std::optional<std::tm> now) const {
  check_object(variables);
  if (parts_->with_tools) {
    const auto tools = variables.find("tools");
    const bool has_tools = tools != variables.end() && !tools->is_null();
    if (has_tools) return parts_->with_tools->render(messages, variables, limits, now);
  }
  return parts_->render(parts_->need_forms().fitted(messages), variables, limits, now);
}

Rendered ChatTemplate::render_plain(const Json& variables, const RenderLimits& limits,
                                    std::optional<std::tm> now) const {
  check_object(variables);
  return render_with(parts_->parsed, limits, now,
                     [&](jinja::Runtime& runtime, jinja::Scope& scope) {
                       for (const auto& [name, value] : variables.items()) {
                         scope.set(name, jinja::value_from_json(runtime, value, TextSource::tmpl));
                       }
                     });
}

namespace {

constexpr std::size_t template_bytes_max = std::size_t{16} << 20;

/// Empty if there is no such file.
std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  if (!is_listed(path)) return std::nullopt;
  return read_text_file(path, template_bytes_max);
}

/// `chat_template` of a JSON file; a string is the template named default.
std::vector<NamedTemplate> templates_in(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_small_file(path);
  if (!text) return {};
  const Json json = parse_json(*text, path.string(), {.python_numbers = true});
  const auto fail = [&] [[noreturn]] () {
    throw Error(ErrorKind::model,
                path.string() + ": chat_template must be a string or a list of {name, template}");
  };
  const auto found = json.find("chat_template");
  if (!json.is_object() || found == json.end() || found->is_null()) return {};
  if (found->is_string()) return {{"default", found->get<std::string>()}};
  if (!found->is_array()) fail();
  std::vector<NamedTemplate> named;
  for (const Json& entry : *found) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    if (!good) fail();
    named.push_back({entry["name"].get<std::string>(), entry["template"].get<std::string>()});
  }
  return named;
}

}  // namespace

std::vector<NamedTemplate> find_chat_templates(const std::filesystem::path& folder) {
  std::vector<NamedTemplate> named;
  const auto text = read_small_file(folder / "chat_template.jinja");
  if (text) named.push_back({"default", *text});
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / "additional_chat_templates", error)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    if (auto more = read_small_file(file)) named.push_back({file.stem().string(), *more});
  }
  if (text) return named;
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    for (NamedTemplate& entry : templates_in(folder / file)) named.push_back(std::move(entry));
  }
  return named;
}

std::string read_chat_template(const std::filesystem::path& file) {
  if (file.extension() != ".json") return read_text_file(file, template_bytes_max);
  for (NamedTemplate& entry : templates_in(file)) {
    if (entry.name == "default") return std::move(entry.text);
  }
  throw Error(ErrorKind::model, file.string() + ": has no chat_template");
}

}  // namespace hyb
