#include "core/text/post_processor.h"

#include <nlohmann/json.hpp>

#include "core/text/json_fields.h"

namespace hyb {
namespace {

constexpr int depth_max = 8;
constexpr std::size_t tokens_max = 1024;

TokenId read_token(const Json& json, const std::string& where,
                   const PostProcessor::Exists& exists) {
  const bool fits = json.is_number_integer() && json >= 0 && json <= INT32_MAX;
  const TokenId token{fits ? json.get<std::int32_t>() : -1};
  if (!fits || !exists(token)) {
    JsonFields(Json::object(), where).fail("no token has the id " + to_text(json));
  }
  return token;
}

}  // namespace

PostProcessor::PostProcessor(const Json& json, const std::string& where, const Exists& exists) {
  read(json, where, exists, 0);
}

void PostProcessor::read(const Json& json, const std::string& where, const Exists& exists,
                         int depth) {
  if (json.is_null()) return;
  const JsonFields fields(json, where);
  if (depth == depth_max)
    fields.fail("nested deeper than " + std::to_string(depth_max) + " levels");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const Json& steps = fields.array("processors");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      read(steps[i], where + "[" + std::to_string(i) + "]", exists, depth + 1);
    }
  } else if (type == "TemplateProcessing") {
    read_template(json, where, exists);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_pair(json, where, exists);
  } else if (type != "ByteLevel") {  // that one moves offsets only
    fields.fail("the post-processor \"" + type + "\" is not supported");
  }
  if (before_.size() + behind_.size() > tokens_max) {
    fields.fail("adds more than " + std::to_string(tokens_max) + " tokens");
  }
}

void PostProcessor::read_template(const Json& json, const std::string& where,
                                  const Exists& exists) {
  const JsonFields fields(json, where);
  const JsonFields special(fields.at("special_tokens"), where + ".special_tokens");
  bool text_seen = false;
  std::vector<TokenId> before;
  std::vector<TokenId> behind;
  for (const Json& piece : fields.array("single")) {
    const JsonFields part(piece, where + ".single");
    if (!part.at("Sequence").is_null()) {
      const JsonFields sequence(part.at("Sequence"), where + ".single.Sequence");
      if (sequence.text("id") != "A" || text_seen) part.fail("the text A has to come exactly once");
      text_seen = true;
      continue;
    }
    const JsonFields token(part.at("SpecialToken"), where + ".single.SpecialToken");
    const std::string name = token.text("id");
    if (special.at(name).is_null()) part.fail("\"" + name + "\" is not in special_tokens");
    const JsonFields entry(special.at(name), special.where() + "." + name);
    for (const Json& id : entry.array("ids")) {
      (text_seen ? behind : before).push_back(read_token(id, entry.where(), exists));
    }
  }
  if (!text_seen) fields.fail("the text A has to come exactly once");
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
}

void PostProcessor::read_pair(const Json& json, const std::string& where, const Exists& exists) {
  const JsonFields fields(json, where);
  const auto token = [&](const char* key) {
    const Json& pair = fields.array(key);
    if (pair.size() != 2) fields.fail(std::string(key) + " has to be [text, id]");
    return read_token(pair[1], where + "." + key, exists);
  };
  before_.insert(before_.begin(), token("cls"));
  behind_.push_back(token("sep"));
}

void PostProcessor::apply(std::vector<TokenId>& tokens) const {
  tokens.insert(tokens.begin(), before_.begin(), before_.end());
  tokens.insert(tokens.end(), behind_.begin(), behind_.end());
}

}  // namespace hyb
