#include "core/constraint/schema_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/constraint/json_formats.h"
#include "core/constraint/json_numbers.h"
#include "core/constraint/regex.h"

namespace hyb {
namespace {

constexpr std::size_t schema_work_max = 20'000;  // schemas looked at, over all
constexpr std::size_t alternatives_max = 500;
using Facts = SchemaFacts;
constexpr std::array<std::pair<std::string_view, unsigned>, 7> type_names{
    {{"null", Facts::null},
     {"boolean", Facts::boolean},
     {"object", Facts::object},
     {"array", Facts::array},
     {"number", Facts::number},
     {"integer", Facts::number},
     {"string", Facts::string}}};

unsigned type_of(const Json& value) {
  return value.is_null()      ? Facts::null
         : value.is_boolean() ? Facts::boolean
         : value.is_object()  ? Facts::object
         : value.is_array()   ? Facts::array
         : value.is_string()  ? Facts::string
                              : Facts::number;
}

template <typename T>
void keep_larger(T& value, T other) {
  value = std::max(value, other);
}
void keep_limit(std::int64_t& value, std::int64_t other) {
  value = value < 0 ? other : std::min(value, other);
}

}  // namespace

void SchemaReader::fail(const std::string& what) const {
  throw Error(ErrorKind::usage, source_ + ": " + what);
}

std::vector<Facts> SchemaReader::alternatives(const Schemas& schemas) {
  std::vector<Facts> found;
  std::vector<Step> steps;
  for (const Json* schema : schemas) steps.push_back({schema, SIZE_MAX});
  expand({}, std::move(steps), 0, found);
  return found;
}

std::vector<SchemaReader::Step> SchemaReader::with(std::vector<Step> steps, const Json& schema,
                                                   std::size_t parent) const {
  for (std::size_t at = parent; at != SIZE_MAX; at = steps[at].parent) {
    if (steps[at].schema == &schema)
      fail("a '$ref' leads back to its own schema before it describes a value");
  }
  steps.push_back({&schema, parent});
  return steps;
}

void SchemaReader::expand(Facts facts, std::vector<Step> steps, std::size_t next,
                          std::vector<Facts>& found) {
  for (; next < steps.size(); ++next) {
    if (++work_ > schema_work_max) fail("the schema has too many alternatives or references");
    const Json& schema = *steps[next].schema;
    if (schema.is_boolean() && !schema.get<bool>()) return;
    if (schema.is_boolean()) continue;
    if (!schema.is_object()) fail("a schema is an object, true or false, not " + to_text(schema));
    if (!add(schema, facts)) return;
    if (const auto reference = schema.find("$ref"); reference != schema.end()) {
      if (!reference->is_string()) fail("'$ref' is a text");
      steps = with(std::move(steps), target(reference->get<std::string>()), next);
    }
    if (const Json* all = typed(schema, "allOf", true)) {
      for (const Json& part : *all) steps = with(std::move(steps), part, next);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const Json* options = typed(schema, keyword, true))
        facts.choices.push_back({options, keyword[0] == 'o', next});
    }
  }
  if (facts.types == 0 || (facts.values && facts.values->empty())) return;
  if (facts.choices.empty()) {
    found.push_back(std::move(facts));
    if (found.size() > alternatives_max) fail("the schema has too many alternatives");
    return;
  }
  const Facts::Choice choice = facts.choices.back();
  facts.choices.pop_back();
  std::vector<std::vector<Facts>> options;
  for (const Json& option : *choice.options) {
    options.emplace_back();
    expand(facts, with(steps, option, choice.parent), steps.size(), options.back());
  }
  for (std::size_t i = 0; i < options.size(); ++i) {
    for (std::size_t k = i + 1; choice.exclusive && k < options.size(); ++k) {
      if (disjoint(options[i], options[k], 0)) continue;
      fail(
          "the keyword 'oneOf' is enforced only where no value can satisfy two of its schemas; "
          "that is not sure of numbers " +
          std::to_string(i + 1) + " and " + std::to_string(k + 1) + "; use 'anyOf'");
    }
    std::ranges::move(options[i], std::back_inserter(found));
  }
  if (found.size() > alternatives_max) fail("the schema has too many alternatives");
}

const Json& SchemaReader::target(const std::string& reference) const {
  if (reference != "#" && !reference.starts_with("#/")) {
    fail("'$ref': '" + reference + "' is not within the document; only '#' and '#/...' are read");
  }
  std::string pointer;
  for (std::size_t i = 1; i < reference.size(); ++i) {
    char c = reference[i];
    if (c == '%' && i + 2 < reference.size()) {
      c = static_cast<char>(std::strtol(reference.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    }
    pointer += c;
  }
  try {
    return document_.at(Json::json_pointer(pointer));
  } catch (const Json::exception&) {
    fail("'$ref': there is no '" + reference + "'");
  }
}

void SchemaReader::check_keywords(const Json& schema) const {
  static const std::set<std::string_view> refused{"not",
                                                  "if",
                                                  "then",
                                                  "else",
                                                  "contains",
                                                  "minContains",
                                                  "maxContains",
                                                  "dependentRequired",
                                                  "dependentSchemas",
                                                  "dependencies",
                                                  "unevaluatedProperties",
                                                  "unevaluatedItems",
                                                  "$dynamicRef",
                                                  "$recursiveRef",
                                                  "additionalItems",
                                                  "nullable"};
  for (const auto& [key, value] : schema.items()) {
    // These say nothing alone.
    if ((key == "then" || key == "else") && !schema.contains("if")) continue;
    if ((key == "minContains" || key == "maxContains") && !schema.contains("contains")) continue;
    if (key == "nullable" && value == false) continue;
    const bool is_unique = key == "uniqueItems" && value != false;
    if (refused.contains(key) || is_unique || (key == "$id" && &schema != &document_))
      fail("the keyword '" + key + "' is not supported");
  }
}

std::int64_t SchemaReader::count(const Json& value, const char* keyword) const {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number != std::floor(number) || number > 1e9)
    fail("the keyword '" + std::string(keyword) + "' needs a whole number from 0 to 10^9, not " +
         to_text(value));
  return static_cast<std::int64_t>(number);
}

const Json* SchemaReader::typed(const Json& schema, const char* keyword, bool is_array) const {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return nullptr;
  if (is_array ? !found->is_array() : !found->is_object())
    fail("the keyword '" + std::string(keyword) + "' needs an " + (is_array ? "array" : "object") +
         ", not " + to_text(*found).substr(0, 60));
  return &*found;
}

bool SchemaReader::add(const Json& schema, Facts& facts) {
  check_keywords(schema);
  if (const auto type = schema.find("type"); type != schema.end()) {
    unsigned types = 0;
    bool whole = true;
    const Json names = type->is_array() ? *type : Json::array({*type});
    for (const Json& name : names) {
      const auto known = std::ranges::find_if(type_names, [&](const auto& row) {
        return name.is_string() && name.get<std::string>() == row.first;
      });
      if (known == type_names.end()) fail("there is no type " + to_text(name));
      types |= known->second;
      whole = whole && known->first != "number";
    }
    facts.types &= types;
    facts.integer = facts.integer || ((types & Facts::number) && whole);
  }
  add_numbers_and_strings(schema, facts);
  add_objects_and_arrays(schema, facts);
  add_values(schema, facts);
  return facts.types != 0;
}

void SchemaReader::add_values(const Json& schema, Facts& facts) {
  const auto restrict_to = [&](const std::vector<const Json*>& values) {
    std::vector<const Json*> kept;
    for (const Json* value : values) {
      const bool was = !facts.values || std::ranges::any_of(*facts.values, [&](const Json* other) {
        return *other == *value;
      });
      if (was) kept.push_back(value);
    }
    facts.values = std::move(kept);
  };
  if (const auto value = schema.find("const"); value != schema.end()) restrict_to({&*value});
  if (const Json* list = typed(schema, "enum", true)) {
    std::vector<const Json*> values;
    for (const Json& value : *list) values.push_back(&value);
    restrict_to(values);
  }
  if (!facts.values) return;
  unsigned types = 0;
  for (const Json* value : *facts.values) types |= type_of(*value);
  facts.types &= types;
}

void SchemaReader::add_numbers_and_strings(const Json& schema, Facts& facts) {
  for (const auto& [key, value] : schema.items()) {
    const bool above = key == "minimum" || key == "exclusiveMinimum";
    if (above || key == "maximum" || key == "exclusiveMaximum") {
      if (!value.is_number()) fail("the keyword '" + key + "' needs a number");
      facts.bounds.push_back({&value, above, key.starts_with('e')});
    } else if (key == "multipleOf") {
      if (!value.is_number()) fail("the keyword 'multipleOf' needs a number");
      facts.divisors.push_back(&value);
    } else if (key == "minLength") {
      keep_larger(facts.length_min, count(value, "minLength"));
    } else if (key == "maxLength") {
      keep_limit(facts.length_max, count(value, "maxLength"));
    } else if (key == "pattern" || key == "format") {
      if (!value.is_string()) fail("the keyword '" + key + "' needs a text");
      (key == "pattern" ? facts.patterns : facts.formats).push_back(value.get<std::string>());
    }
  }
}

void SchemaReader::add_objects_and_arrays(const Json& schema, Facts& facts) {
  Facts::ObjectKeywords object{typed(schema, "properties", false),
                               typed(schema, "patternProperties", false)};
  if (const auto found = schema.find("additionalProperties"); found != schema.end())
    object.additional = &*found;
  if (object.properties || object.patterns || object.additional) facts.objects.push_back(object);
  if (const Json* required = typed(schema, "required", true)) {
    for (const Json& name : *required) {
      if (!name.is_string()) fail("the keyword 'required' needs names");
      if (std::ranges::find(facts.required, name.get<std::string>()) == facts.required.end())
        facts.required.push_back(name.get<std::string>());
    }
  }
  Facts::ArrayKeywords array{typed(schema, "prefixItems", true)};
  for (const auto& [key, value] : schema.items()) {
    if (key == "propertyNames") facts.names.push_back(&value);
    if (key == "items") array.items = &value;
    if (key == "minProperties") keep_larger(facts.properties_min, count(value, "minProperties"));
    if (key == "maxProperties") keep_limit(facts.properties_max, count(value, "maxProperties"));
    if (key == "minItems") keep_larger(facts.items_min, count(value, "minItems"));
    if (key == "maxItems") keep_limit(facts.items_max, count(value, "maxItems"));
  }
  if (array.prefix || array.items) facts.arrays.push_back(array);
}

SchemaReader::Schemas SchemaReader::of_key(const Facts& facts, const std::string& key) {
  Schemas schemas;
  for (const Facts::ObjectKeywords& object : facts.objects) {
    bool is_known = false;
    if (object.properties && object.properties->contains(key)) {
      schemas.push_back(&object.properties->at(key));
      is_known = true;
    }
    if (object.patterns) {
      for (const auto& [regex, schema] : object.patterns->items()) {
        if (!pattern(regex).contains(key)) continue;
        schemas.push_back(&schema);
        is_known = true;
      }
    }
    if (!is_known && object.additional) schemas.push_back(object.additional);
  }
  static const Json nothing(false);
  for (const Json* names : facts.names)
    if (!strings(Schemas{names}).contains(key)) schemas.push_back(&nothing);
  return schemas;
}

SchemaReader::Schemas SchemaReader::of_item(const Facts& facts, std::size_t at) {
  Schemas schemas;
  for (const Facts::ArrayKeywords& array : facts.arrays) {
    if (array.prefix && at < array.prefix->size())
      schemas.push_back(&array.prefix->at(at));
    else if (array.items)
      schemas.push_back(array.items);
  }
  return schemas;
}

const CharAutomaton& SchemaReader::pattern(const std::string& regex) {
  const auto known = patterns_.find(regex);
  if (known != patterns_.end()) return known->second;
  return patterns_[regex] = CharAutomaton(read_regex(regex, source_), true, source_);
}

CharAutomaton SchemaReader::strings(const Facts& facts) {
  CharAutomaton result = CharAutomaton::all();
  bool is_all = true;
  const auto restrict_to = [&](CharAutomaton other) {
    result =
        is_all ? std::move(other) : result.combined(other, CharAutomaton::Operation::both, source_);
    is_all = false;
  };
  if (facts.values) {
    std::vector<std::string> texts;
    for (const Json* value : *facts.values)
      if (value->is_string()) texts.push_back(value->get<std::string>());
    restrict_to(CharAutomaton::of_texts(texts, source_));
  }
  for (const std::string& regex : facts.patterns) restrict_to(pattern(regex));
  for (const std::string& format : facts.formats) {
    const std::string_view regex = regex_of_format(format);
    if (regex.empty()) fail("the keyword 'format' does not know '" + format + "'");
    restrict_to(CharAutomaton(read_regex(regex, source_), false, source_));
  }
  if (facts.length_min > 0 || facts.length_max >= 0)
    restrict_to(CharAutomaton::of_length(facts.length_min, facts.length_max, source_));
  return result;
}

CharAutomaton SchemaReader::strings(const Schemas& schemas) {
  CharAutomaton result;
  for (const Facts& facts : alternatives(schemas)) {
    if (facts.types & Facts::string)
      result = result.combined(strings(facts), CharAutomaton::Operation::either, source_);
  }
  return result;
}

CharAutomaton SchemaReader::numbers(const Facts& facts) {
  const bool is_plain = !facts.bounds.empty() || !facts.divisors.empty();
  CharAutomaton result = number_spellings(facts.integer, is_plain, source_);
  const auto restrict_to = [&](const CharAutomaton& other) {
    result = result.combined(other, CharAutomaton::Operation::both, source_);
  };
  for (const Facts::Bound& bound : facts.bounds)
    restrict_to(numbers_beyond(Decimal::of(to_text(*bound.value), source_), bound.above,
                               bound.strict, source_));
  for (const Json* divisor : facts.divisors)
    restrict_to(multiples_of(Decimal::of(to_text(*divisor), source_), source_));
  return result;
}

bool SchemaReader::disjoint(const std::vector<Facts>& a, const std::vector<Facts>& b, int depth) {
  return std::ranges::all_of(a, [&](const Facts& one) {
    return std::ranges::all_of(b, [&](const Facts& other) { return disjoint(one, other, depth); });
  });
}

bool SchemaReader::disjoint(const Facts& a, const Facts& b, int depth) {
  if (++work_ > schema_work_max)
    fail("the schema has too many alternatives to compare for 'oneOf'");
  const unsigned types = a.types & b.types;
  if (types == 0) return true;
  if (a.values && b.values) {
    return std::ranges::none_of(*a.values, [&](const Json* value) {
      return std::ranges::any_of(*b.values, [&](const Json* other) { return *value == *other; });
    });
  }
  if (types & (Facts::null | Facts::boolean)) return false;
  const auto both_empty = [&](const CharAutomaton& x, const CharAutomaton& y) {
    return x.combined(y, CharAutomaton::Operation::both, source_).empty();
  };
  if ((types & Facts::string) && !both_empty(strings(a), strings(b))) return false;
  if ((types & Facts::number) && (a.values || b.values || !both_empty(numbers(a), numbers(b))))
    return false;
  const auto apart = [](std::int64_t max, std::int64_t min) { return max >= 0 && max < min; };
  if ((types & Facts::array) && !apart(a.items_max, b.items_min) &&
      !apart(b.items_max, a.items_min))
    return false;
  return !(types & Facts::object) || objects_disjoint(a, b, depth);
}

bool SchemaReader::objects_disjoint(const Facts& a, const Facts& b, int depth) {
  if (depth > 4) return false;
  // What satisfies both has each key that one of them requires, with a value for both.
  for (const Facts* from : {&a, &b}) {
    for (const std::string& key : from->required) {
      if (disjoint(alternatives(of_key(a, key)), alternatives(of_key(b, key)), depth + 1))
        return true;
    }
  }
  return false;
}

}  // namespace hyb
