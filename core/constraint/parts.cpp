#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/constraint/grammar.h"
#include "core/constraint/json_schema.h"

namespace hyb {
namespace {

using Id = Expressions::Id;

constexpr int indent_max = 40;

/// Any bytes that do not hold the text: a rule for each number of its bytes that were just read.
Id bytes_without(const std::string& text, Expressions& x, std::vector<Grammar::Rule>& rules) {
  require(!text.empty(), "what ends a text has bytes");
  const auto after = [&x, first = rules.size()](std::size_t read) {
    return x.one(static_cast<char32_t>(first_rule + first + read));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::map<std::size_t, std::vector<SymbolSet::Range>> bytes;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const std::string read = text.substr(0, i) + static_cast<char>(byte);
      std::size_t length = read.size();
      while (!read.ends_with(std::string_view(text).substr(0, length))) --length;
      bytes[length].emplace_back(first_byte + byte, first_byte + byte);
    }
    std::vector<Id> ways{Expressions::empty};
    for (auto& [length, set] : bytes) {
      if (length == text.size()) continue;
      ways.push_back(x.sequence(x.chars(SymbolSet(std::move(set))), after(length)));
    }
    rules.push_back({"text without " + text, x.choice(std::move(ways))});
  }
  return x.one(static_cast<char32_t>(first_rule + rules.size() - text.size()));
}

}  // namespace

Grammar Grammar::from_parts(const Json& alternatives, const std::string& source,
                            const std::string& begin) {
  Expressions x(source);
  const Id blanks = x.repeat(x.choice({x.bytes(" "), x.bytes("\t")}), 0, indent_max);
  const Id line = x.sequence(x.bytes("\n"), blanks);
  std::vector<Rule> rules{
      {"white space", x.whole(x.choice({Expressions::empty, x.bytes(" "), line}))}};
  const auto value_of = [&](const Json& part) {
    if (const auto schema = part.find("schema"); schema != part.end())
      return schema_rules(*schema, x, rules);
    if (const Json* until = member_of(part, "until"))
      return bytes_without(until->get<std::string>(), x, rules);
    std::vector<Id> options;
    for (const Json& text : part.value("options", Json::array({""})))
      options.push_back(x.bytes(text.get_ref<const std::string&>()));
    return x.choice(std::move(options));
  };
  std::vector<Id> choices;
  for (const Json& alternative : alternatives) {
    Id parts = Expressions::empty;
    for (const Json& part : alternative) {
      const Id one = x.sequence(
          {x.bytes(part.value("text", "")), value_of(part), x.bytes(part.value("after", ""))});
      parts = x.sequence(parts,
                         part.value("optional", false) ? x.choice({Expressions::empty, one}) : one);
    }
    choices.push_back(parts);
  }
  Id root = x.choice(std::move(choices));
  if (!begin.empty()) {
    const Id free = bytes_without(begin, x, rules);
    root = x.sequence(x.repeat(x.sequence(free, root), 0, Expressions::unbounded), free);
  }
  rules.push_back({"root", root});
  return Grammar(x, std::move(rules), Spelling::json);
}

}  // namespace hyb
