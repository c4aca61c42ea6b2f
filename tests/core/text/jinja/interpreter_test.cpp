#include "core/text/jinja/interpreter.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "core/text/chat_template.h"
#include "tests/support/files.h"
#include "tests/support/fixed_time.h"

namespace interpreter_test {

using namespace hyb;
using hyb::testing::content, hyb::testing::fixed_time;

namespace {

const std::string folder = std::string(HYB_TESTS_DIR) + "/core/text/jinja/";

/// Nothing for an error.
std::optional<std::string> rendered(const std::string& source, const Json& variables) {
  try {
    return ChatTemplate::parse(source, "case").render_plain(variables, {}, fixed_time()).text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string error_of(const std::string& source, const RenderLimits& limits = {}) {
  try {
    ChatTemplate::parse(source, "file").render_plain(Json::object(), limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("core/text/jinja/interpreter") {
  TEST_CASE("every case renders as jinja2 renders it") {
    const Json scenarios = parse_json(content(folder + "scenarios.json"), "scenarios");
    std::istringstream lines(content(folder + "cases.jsonl"));
    int cases = 0;
    for (std::string line; std::getline(lines, line); ++cases) {
      const Json item = parse_json(line, "cases.jsonl");
      const std::string source =
          item.contains("file") ? content(folder + "templates/" + item["file"].get<std::string>())
                                : item["template"].get<std::string>();
      Json variables = item.value("variables", Json::object());
      if (item.contains("scenario")) variables = scenarios[item["scenario"].get<std::string>()];
      const std::optional<std::string> text = rendered(source, variables);
      const std::string name = item["name"];
      CAPTURE(name);
      CHECK(text.has_value() != item.value("error", false));
      if (text) CHECK(*text == item.value("expected", std::string("(an error)")));
    }
    CHECK(cases > 1300);
  }

  TEST_CASE("jinja2 itself agrees with the expectations") {
    const std::string script = std::string(HYB_TESTS_DIR) + "/../scripts/fuzz/jinja_cases.py";
    // Debian's python3-jinja2, whatever python3 comes first in PATH.
    CHECK(std::system(("/usr/bin/python3 -B " + script + " > /dev/null").c_str()) == 0);
  }

  TEST_CASE("errors name the innermost place") {
    CHECK(error_of("a\n  {{ x.y }}").starts_with("file: line 2, column 7: "));
    CHECK(error_of("{{ 1 + (2 * ('a' - 1)) }}").starts_with("file: line 1, column 18: "));
    CHECK(error_of("{{ 'a' | nope }}").find("unknown filter 'nope'") != std::string::npos);
    CHECK(error_of("{{ 'a' is nope }}").find("unknown test 'nope'") != std::string::npos);
    CHECK(error_of("{{ 'a'.zfill(3) }}").find("str has no method zfill") != std::string::npos);
    CHECK(error_of("{{ '%05d' % 3 }}").find("only %s and %% are supported") != std::string::npos);
    CHECK(error_of("{% macro m() %}{% endmacro %}{{ m(1) }}").find("takes at most 0") !=
          std::string::npos);
    for (const char* const source :
         {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}",
          "{% macro m() %}{% if kwargs is defined %}a{% endif %}{% endmacro %}{{ m() }}",
          "{% macro m() %}{% endmacro %}{{ m.name }}",
          "{% for i in [1] %}{{ loop.depth }}{% endfor %}",
          "{% for i in [1] %}{% if loop.depth0 == 0 %}a{% endif %}{% endfor %}",
          "{% for i in [1] %}{{ loop.cycle }}{% endfor %}"}) {
      CAPTURE(source);
      CHECK(error_of(source).find("not supported") != std::string::npos);
    }
    CHECK(error_of("{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}").empty());
    CHECK(error_of("{% macro m() %}\n{{ none.upper() }}{% endmacro %}{{ m() }}")
              .starts_with("file: line 2, "));
  }

  TEST_CASE("every limit ends a rendering and is named") {
    struct Bomb {
      const char* source;
      const char* limit;
    };
    for (const Bomb& bomb : {
             Bomb{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nesting"},
             Bomb{"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
                  "{{ a() }}",
                  "nesting"},
             Bomb{"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}"
                  "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
                  "nesting"},
             Bomb{"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}"
                  "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == ns.l }}{{ ns.l | tojson }}",
                  "nesting"},
             Bomb{"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "nesting"},
             Bomb{"{% set d = {} %}{% set _ = d.update(x=d) %}{{ d | tojson }}", "nesting"},
             Bomb{"{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}"
                  "{% set _ = m.append(m) %}{{ l == m }}",
                  "nesting"},
             Bomb{"{{ range(1000000000) }}", "range"},
             Bomb{"{{ 'x' * 1000000000000 }}", "memory"},
             Bomb{"{{ [1] * 1000000000000 }}", "memory"},
             Bomb{"{{ 'a' | indent(1000000000000) }}", "memory"},
             Bomb{"{% set ns = namespace(s='x') %}{% for i in range(99) %}"
                  "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                  "memory"},
             Bomb{"{% set ns = namespace(s='abc') %}{% for i in range(99) %}"
                  "{% set ns.s = ns.s.replace('', ns.s) %}{% endfor %}",
                  "memory"},
             Bomb{"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}"
                  "{% set ns.l = ns.l + ns.l %}{% endfor %}",
                  "memory"},
             Bomb{"{% for a in range(99999) %}{% for b in range(99999) %}"
                  "{% endfor %}{% endfor %}",
                  "limit"},
             Bomb{"{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx"
                  "{% endfor %}{% endfor %}",
                  "limit"},
             Bomb{"{% set s = 'ab' * 9999999 %}{% for a in range(99999) %}"
                  "{{ 'ba' * 4999999 ~ 'x' in s }}{% endfor %}",
                  "limit"},
         }) {
      CAPTURE(bomb.source);
      const RenderLimits limits{.steps_max = 3'000'000,
                                .output_bytes_max = std::size_t{1} << 20,
                                .memory_bytes_max = std::size_t{64} << 20};
      const auto start = std::chrono::steady_clock::now();
      const std::string error = error_of(bomb.source, limits);
      CHECK(error.find(bomb.limit) != std::string::npos);
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
    }
    const std::string output = "{% for a in range(99999) %}xxxxxxxxxxxxxxxx{% endfor %}";
    CHECK(error_of(output, {.output_bytes_max = 1 << 20}).find("of output") != std::string::npos);
    CHECK(error_of("{% for a in range(9) %}{% endfor %}", {.steps_max = 8}).find("8 steps") !=
          std::string::npos);
    const std::string slow =
        "{% for a in range(99999) %}{% for b in range(999) %}{% endfor %}{% endfor %}";
    CHECK(error_of(slow, {.time_max = std::chrono::milliseconds(20)}).find("20 ms") !=
          std::string::npos);
  }

  TEST_CASE("building a text piece by piece takes linear time and memory") {
    const std::string source =
        "{% set ns = namespace(s='') %}{% for a in range(90000) %}{% set ns.s = ns.s + 'twenty "
        "bytes of text' %}{% endfor %}{{ ns.s | length }}";
    CHECK(rendered(source, Json::object()) == "1800000");
  }

  TEST_CASE("templates may run on many threads' stacks: the default depth is safe") {
    const std::string source =
        "{% macro m(n) %}{% if n > 0 %}{% for i in [n] %}{{ '' ~ (m(i - 1) | trim) }}{% endfor %}"
        "{% else %}end{% endif %}{% endmacro %}{{ m(80) }}";
    CHECK(rendered(source, Json::object()) == "end");
  }
}

}  // namespace interpreter_test
