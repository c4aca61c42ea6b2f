#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/text/tokenizer.h"

namespace hyb {

/// Says how a model writes calls of tools in its answers.
struct CallForm {
  enum class Body : std::uint8_t {
    list,    ///< JSON objects with name and arguments, or Python calls: one, or a list of them
    named,   ///< a name and an object
    tagged,  ///< a name, then keys and values between tags; a value is text or JSON by its schema
    harmony  ///< a message with a header: see AnswerPart::call
  };
  std::string_view begin, end;
  Body body;
  std::string_view before_name = "", after_name = "";
  /// A tagged body has these. Without before_value a value's first and last line break are not its
  /// own.
  std::string_view before_key = "", after_key = "", before_value = "", after_value = "", close = "";
};

/// Describes what calls of a request's tools look like.
struct CallTerms {
  const CallForm* form = nullptr;  ///< null: a call is text as any other
  std::string tools = "[]";        ///< in OpenAI's form: schemas say what is text in tagged calls
};

/// Returns the form of answers that are nothing but calls: a list of objects, as vLLM has bound
/// ones.
const CallForm& call_list();

/// The form of a call of the tool `name` in a rendered conversation; null: none of ours.
const CallForm* call_form_in(std::string_view text, std::string_view name);

/// The form whose markers are tokens of the vocabulary; null: none.
const CallForm* call_form_of(const Tokenizer& tokenizer);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< a JSON object, spaced as Python's json.dumps does; numbers as written
};

struct CallReading {
  /// More text may make an open one whole; a refuted one is no call, whatever follows.
  enum class State : std::uint8_t { whole, open, refuted } state;
  std::size_t length;  ///< bytes of a whole one
  std::vector<ToolCall> calls = {};
};

/// Reads the call that begins a text with the form's marker, in time in proportion to the text,
/// which is whatever a model wrote. Lenient where it is clear what was meant: either quote,
/// Python's words for JSON's, line breaks in strings, escapes that JSON lacks.
CallReading read_call(std::string_view text, const CallForm& form);

/// The calls of an AnswerPart::call, which is one or more after one another.
std::vector<ToolCall> calls_in(std::string_view text, const CallTerms& terms);

/// The call of a message of harmony, "to=functions.NAME json<|message|>ARGUMENTS", its arguments as
/// the model wrote them, cut off or not.
ToolCall harmony_call(std::string_view message);

}  // namespace hyb
