#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/batch/input_file.h"
#include "app/request/prompt.h"
#include "app/request/template_probe.h"
#include "core/base/json.h"
#include "core/engine/request.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

/// Settings that hold for every line of a job.
struct JobTerms {
  Request defaults;         ///< what a line does not say
  RequestLimits limits;     ///< of the engine
  std::string model = {};   ///< as the user named it
  std::string system = {};  ///< for lines that are only a prompt; may be empty
  Think think = {};         ///< of lines that are chats and say nothing of it themselves
  Json tools = nullptr;     ///< of lines that are chats and have none
  bool raw = false;  ///< lines that are only a prompt are continued without the chat template
  bool allow_special = false;             ///< control tokens in texts to be continued become tokens
  std::vector<std::string> ignored = {};  ///< fields that are read as if lines did not have them
  Truncate truncate = Truncate::refuse;
};

/// A request for the engine, and how its answer starts.
struct MadeRequest {
  Request request;
  AnswerStart start;
};

/// Makes the engine's requests of a job's lines.
class RequestMaker {
 public:
  /// `chat_template` may be null, and `rules`, without which lines that say what their answer must
  /// be fail; these and the tokenizer outlive this.
  RequestMaker(const Tokenizer& tokenizer, const ChatTemplate* chat_template, JobTerms terms,
               ConstraintCache* rules = nullptr)
      : tokenizer_(tokenizer),
        chat_template_(chat_template),
        terms_(std::move(terms)),
        rules_(rules) {}

  /// The request of a line that has no failure yet. Throws Error(usage) or Error(model) saying what
  /// is wrong with it: it can never run.
  MadeRequest make(RequestLine line);

  /// Warnings for people since the last call, each said once in the life of this.
  std::vector<std::string> take_warnings();

 private:
  EncodedPrompt encode(const RequestLine& line);
  std::vector<TokenId> encode_text(const std::string& text);
  void warn_of(const RequestLine& line);
  void warn(const std::string& text);

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  JobTerms terms_;
  ConstraintCache* rules_;
  std::set<std::string> warned_;
  std::vector<std::string> warnings_;
};

}  // namespace hyb::app
