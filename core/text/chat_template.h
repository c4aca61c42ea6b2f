#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/text/tool_calls.h"

namespace hyb {

/// The origin of a stretch of a rendered prompt. It decides which added tokens the tokenizer
/// recognises in it: all in `tmpl`, a limited set in `assistant`, none in `person`.
enum class TextSource : std::uint8_t {
  tmpl,       ///< the template's own text, trusted variables, and the standard role names
  assistant,  ///< anything inside an assistant message
  person,     ///< user, system, developer and tool messages, tool definitions, documents
};

/// A non-empty stretch from one source.
struct RenderedPiece {
  std::string text;
  TextSource source;
};

/// The prompt; adjacent pieces differ in source.
struct Rendered {
  std::vector<RenderedPiece> pieces;

  std::string text() const;
};

/// Limits of one rendering. Exceeding one is Error(model) that names it.
struct RenderLimits {
  int depth_max = 1000;  ///< nested statements, expressions and macro calls together
  std::int64_t steps_max = 50'000'000;
  std::size_t output_bytes_max = std::size_t{64} << 20;
  std::size_t memory_bytes_max = std::size_t{512} << 20;  ///< values created while rendering
  std::chrono::milliseconds time_max{10'000};
};

/// A chat template in the Jinja dialect that Hugging Face renders: trim_blocks and lstrip_blocks
/// on, keep_trailing_newline off, no autoescape, break and continue, generation tags passed
/// through. Templates are untrusted: they reach no host objects, and every cost is limited.
class ChatTemplate {
 public:
  /// Syntax errors are Error(model) "source_name: line L, column C: ...".
  static ChatTemplate parse(std::string_view source_text, std::string_view source_name);

  /// Conversations with `tools` (even an empty list of them) are rendered by another template.
  void use_with_tools(ChatTemplate other);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Returns whether an expression of it names the variable, so that it may change a prompt. The
  /// template for conversations with tools counts for `tools`.
  bool reads(const std::string& variable) const;

  /// Says how conversations with tools show a past call; null: not at all, or in no form of ours.
  const CallForm* call_form() const;

  /// `messages`: array of objects as in the OpenAI API, in any of the forms that MessageForms fits
  /// to the template. `variables`: an object (or null) of everything else: tools, documents,
  /// bos_token, add_generation_prompt, ...; the members of its `chat_template_kwargs` become
  /// variables, too. `now` is the time for strftime_now, the local time if absent. What the
  /// template raises is Error(usage), and so is a part of a message that is not text; an error in
  /// the template is Error(model) with line and column. Thread-safe.
  Rendered render(const Json& messages, const Json& variables, const RenderLimits& limits = {},
                  std::optional<std::tm> now = std::nullopt) const;

  /// Renders a template without messages, with all variables trusted.
  Rendered render_plain(const Json& variables, const RenderLimits& limits = {},
                        std::optional<std::tm> now = std::nullopt) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

struct NamedTemplate {
  std::string name;
  std::string text;
};

/// The templates of a model folder, in the order in which a name is looked up: "default" is
/// chat_template.jinja, NAME is additional_chat_templates/NAME.jinja. Unless there is a
/// chat_template.jinja, `chat_template` of tokenizer_config.json (a string: "default", or a list of
/// {name, template}) follows, and that of chat_template.json. Files over 16 MiB are Error(model).
std::vector<NamedTemplate> find_chat_templates(const std::filesystem::path& folder);

/// The template in a file: its text, or for *.json its `chat_template`. Throws Error(model).
std::string read_chat_template(const std::filesystem::path& file);

}  // namespace hyb
