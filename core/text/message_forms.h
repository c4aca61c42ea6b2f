#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/text/tool_calls.h"

namespace hyb {

/// Knows which of the forms in which clients send messages a chat template takes. Found by
/// rendering short conversations: what macros, filters and tests make of a value shows in the text
/// alone.
class MessageForms {
 public:
  /// The text of a conversation; nothing where the template refuses it.
  using Trial = std::function<std::optional<std::string>(const Json& messages)>;

  explicit MessageForms(const Trial& trial);

  /// OpenAI's messages as the template takes them:
  /// - members of a message that are null are left out, but for the content of a message with calls
  ///   where the template shows these only beside content that is none (DeepSeek-R1's);
  /// - content that is a list of text parts stays one where the template shows every part, else its
  ///   texts are joined by line breaks; a text becomes a list of one part where the template shows
  ///   lists alone. Both are decided for each role;
  /// - arguments of a tool call that are a JSON object in a string become that object (blank: an
  ///   empty one), except where the template shows such a string as it is; an object becomes a
  ///   string where the template shows strings alone;
  /// - thoughts (reasoning_content, thinking) are also `reasoning` where the template reads that.
  /// Throws Error(usage) for a part that is not text, with the message's index and the part's type.
  /// Anything that is no message is returned as it is.
  Json fitted(const Json& messages) const;

  /// Says how the template shows a past call; null: not at all, or in no form of ours.
  const CallForm* call_form() const { return call_form_; }

 private:
  enum class Content : std::uint8_t { text, list, any };

  /// `number` is the message's index.
  void fit_content(Json& content, std::string_view role, std::size_t number) const;
  void fit_calls(Json& calls) const;
  void fit_call(Json& call) const;
  void fit_arguments(Json& arguments) const;

  std::map<std::string, Content, std::less<>> content_;  ///< by role; others take texts
  bool keeps_null_content_ = false;
  bool shows_text_arguments_ = false;
  bool shows_object_arguments_ = false;
  bool reads_reasoning_ = false;
  const CallForm* call_form_ = nullptr;
};

}  // namespace hyb
