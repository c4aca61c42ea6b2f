// Renders templates for scripts/fuzz/jinja_cases.py: each line of stdin is a JSON object with
// `template` and `variables`, each line of stdout one with `text` or `error`.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/text/chat_template.h"
#include "tests/support/fixed_time.h"

namespace {

hyb::Json answer(const std::string& line) {
  try {
    const hyb::Json request = hyb::parse_json(line, "stdin");
    const auto parsed =
        hyb::ChatTemplate::parse(request.at("template").get<std::string>(), "template");
    const hyb::Json variables = request.value("variables", hyb::Json::object());
    return {{"text", parsed.render_plain(variables, {}, hyb::testing::fixed_time()).text()}};
  } catch (const hyb::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << hyb::to_text(answer(line)) << '\n';
  }
  return 0;
}
