#include "core/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/jinja/fault.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/json_values.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/parser.h"

namespace hyb {
namespace {

using jinja::Fault;
using jinja::FaultKind;

constexpr std::size_t message_bytes_max = 1000;

/// A template's own words, made safe to show in a terminal.
std::string shown(std::string_view text) {
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
                parsed.name + ": the chat template refuses this input: " + shown(fault.what()));
  }
  throw Error(ErrorKind::model,
              jinja::where(parsed.name, parsed.source, place) + "template: " + shown(fault.what()));
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
  jinja::Interpreter interpreter(parsed, runtime, root, output);
  try {
    define(runtime, root);
  } catch (const Fault& fault) {
    throw Error(ErrorKind::usage, parsed.name + ": template variables: " + fault.what());
  }
  try {
    interpreter.run();
  } catch (const Fault& fault) {
    fail(parsed, interpreter.place(), fault);
  }
  return {pieces_of(output)};
}

void check_object(const Json& variables) {
  if (!variables.is_object() && !variables.is_null()) {
    throw Error(ErrorKind::usage, "template variables: a JSON object is wanted");
  }
}

}  // namespace

std::string Rendered::text() const {
  std::string out;
  for (const RenderedPiece& piece : pieces) out += piece.text;
  return out;
}

ChatTemplate::ChatTemplate(std::unique_ptr<jinja::Template> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source_text, std::string_view source_name) {
  return ChatTemplate(
      std::make_unique<jinja::Template>(jinja::parse_template(source_text, source_name)));
}

Rendered ChatTemplate::render(const Json& messages, const Json& variables,
                              const RenderLimits& limits, std::optional<std::tm> now) const {
  check_object(variables);
  return render_with(*parsed_, limits, now, [&](jinja::Runtime& runtime, jinja::Scope& scope) {
    // What the reference always defines.
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

Rendered ChatTemplate::render_plain(const Json& variables, const RenderLimits& limits,
                                    std::optional<std::tm> now) const {
  check_object(variables);
  return render_with(*parsed_, limits, now, [&](jinja::Runtime& runtime, jinja::Scope& scope) {
    for (const auto& [name, value] : variables.items()) {
      scope.set(name, jinja::value_from_json(runtime, value, TextSource::tmpl));
    }
  });
}

}  // namespace hyb
