#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/text/tool_calls.h"

namespace hyb {

/// Says how a model spells a thought of its answer: begin, name, thought, end, and what begins the
/// answer after it. Models leave parts out and add others: these are for writing, AnswerScanner
/// reads.
struct ThoughtMarkers {
  std::string_view begin = "<think>", end = "</think>";
  std::string_view name = "";    ///< follows that marker
  std::string_view answer = "";  ///< follows the end
  /// An answer is messages with headers, which say what each is: harmony, the format of gpt-oss.
  bool has_headers = false;
  /// Templates take a past answer with its thought as it was given. Otherwise without it.
  bool is_in_content = true;
};

/// Chooses by the tokens of the vocabulary: the channels of gpt-oss and of Gemma 4, the markers of
/// Mistral, of Cohere and of Seed, or else <think> and </think>, which need not be tokens.
ThoughtMarkers thought_markers_of(const Tokenizer& tokenizer);

/// Holds what the prompt says of the start of its answer.
struct AnswerStart {
  /// False: the answer is plain text, and nothing in it is a marker of thoughts.
  bool may_think = false;
  /// The thought that the prompt has begun, from its marker on ("<think>\n"); empty: the answer
  /// begins one itself, or has none.
  std::string opening = {};
  ThoughtMarkers markers = {};
  std::string begun = {};  ///< what the prompt has of the answer itself, which goes on with it
  CallTerms calls = {};  ///< without a form, calls are text, and those of harmony AnswerPart::call
};

enum class AnswerPart : std::uint8_t {
  thought,
  marker,  ///< of a thought, and of harmony all headers
  answer,  ///< what is said to the reader
  /// To a tool, as calls_in() reads it. Of harmony, and without a form: any message to a tool,
  /// "to=NAME json<|message|>ARGUMENTS", the channel left out.
  call
};

/// Takes an answer apart while its text streams in.
///
/// Thoughts are at its start: one or more, with white space between them. An end without a begin
/// is a marker too; whatever follows is the answer, further markers included.
///
/// Harmony: every message may have a role, a channel, a recipient (in the role's part or in the
/// channel's), and a type (a word, or one after <|constrain|>) before its <|message|>. Messages of
/// the channel analysis are thoughts, those to a recipient other than "all" calls, and those of a
/// role that is not the assistant's thoughts too; all others (final, commentary without recipient,
/// no channel) are the answer. A header that the answer ends in is a marker; text where a header
/// should be is a message.
///
/// Where AnswerStart has a form of calls, whole calls in the answer are pieces of their own. One
/// that is malformed or cut off is the answer.
class AnswerScanner {
 public:
  explicit AnswerScanner(const AnswerStart& start);

  struct Piece {
    std::string text;
    AnswerPart part;
  };

  /// All pieces together are all texts together, and how these are cut makes no difference. What
  /// may become a marker, a call, or a header of at most 256 bytes, is held back until it is known.
  std::vector<Piece> push(std::string_view text);

  /// Returns what is held back, at the end of the answer.
  std::vector<Piece> finish();

  /// Returns whether the answer may begin here: no thought is open, nor a header.
  bool may_answer() const;

 private:
  enum class Place : std::uint8_t {
    begin,   ///< before a thought or the answer; of harmony, in a header
    opened,  ///< after the marker that begins a thought
    inside,  ///< of a thought; of harmony, of a message
    answer
  };

  bool step(std::string_view& rest, std::vector<Piece>& pieces);
  bool begin_thought(std::string_view& rest, std::vector<Piece>& pieces);
  bool go_inside(std::string_view& rest, std::vector<Piece>& pieces);
  bool read_header(std::string_view& rest, std::vector<Piece>& pieces);
  bool read_answer(std::string_view& rest, std::vector<Piece>& pieces);

  ThoughtMarkers markers_;
  const CallForm* form_;
  bool is_ended_ = false;  ///< nothing follows what is held back
  Place place_;
  AnswerPart part_;  ///< of what is inside
  std::string held_;
};

/// A whole answer, taken apart. Several thoughts, and several messages to the reader, are joined by
/// an empty line; white space around thoughts and calls and before the content is left out.
struct SplitAnswer {
  std::optional<std::string> reasoning;  ///< nothing: the answer has no thought
  std::string content;                   ///< empty where the answer was cut off in its thought
  std::string call;                      ///< of harmony, where AnswerStart has no form; empty: none
  std::vector<ToolCall> calls = {};
};

SplitAnswer split_answer(std::string_view text, const AnswerStart& start);

}  // namespace hyb
