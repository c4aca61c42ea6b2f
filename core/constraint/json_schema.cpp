#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/constraint/grammar.h"
#include "core/constraint/json_scalars.h"
#include "core/constraint/json_schema.h"
#include "core/constraint/regex.h"

namespace hyb {
namespace {

using X = Expressions;
using Id = Expressions::Id;
/// Schemas that hold together for one value.
using Schemas = std::vector<const Json*>;

constexpr std::size_t schema_work_max = 100'000'000;  // comparisons, less than a second
constexpr std::size_t way_work = 5'000;               // of a way to satisfy a value
constexpr std::size_t alternatives_max = 500, schema_rules_max = 50'000, regions_max = 64;
constexpr std::size_t references_max = 200;  // on the way to one value
constexpr int compared_depth_max = 4;

/// Work of comparing each value with each, whose members are looked up one by one.
std::size_t comparisons(const Schemas& a, const Schemas& b) {
  std::size_t members = 1;
  for (const Json* value : a)
    if (value->is_object()) members = std::max(members, value->size());
  return a.size() * b.size() * members * members;
}

bool holds(const Schemas& values, const Json& value) {
  return std::ranges::any_of(values,
                             [&](const Json* other) { return is_same_value(*other, value); });
}

/// Reads the schemas of one document: references, alternatives, the languages of scalars.
class SchemaReader {
 public:
  // clang-format off
  enum Type : unsigned {
    null = 1, boolean = 2, object = 4, array = 8, string = 16, integer = 32, fraction = 64,
    number = integer | fraction, all_types = 127
  };
  // clang-format on
  struct Limits {
    int min = 0, max = X::unbounded;
  };

  SchemaReader(const Json& document, Expressions& expressions)
      : document_(document), x_(expressions) {}

  static unsigned type_of(const Json& value) {
    if (value.is_number()) return number;
    if (value.is_string()) return string;
    if (value.is_array()) return array;
    if (value.is_object()) return object;
    return value.is_boolean() ? boolean : null;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::usage, x_.source() + ": " + what);
  }

  /// The ways to satisfy schemas: those of one way hold together, and of their keywords '$ref',
  /// 'allOf', 'anyOf' and 'oneOf' need no more attention. None: there is no such value.
  std::vector<Schemas> alternatives(const Schemas& schemas) {
    std::vector<Schemas> result{{}};
    for (const Json* schema : schemas) result = together(result, alternatives(*schema));
    return result;
  }

  // The functions below take the schemas of one way.

  /// A keyword of a schema; nullptr: it has none.
  const Json* find(const Json& schema, const char* keyword, unsigned types = all_types) const {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return nullptr;
    if (!(type_of(*found) & types))
      fail("the keyword '" + std::string(keyword) + "' can't be " + to_text(*found).substr(0, 60));
    return &*found;
  }

  /// A keyword of all schemas that have it.
  Schemas all(const Schemas& schemas, const char* keyword, unsigned types = all_types) const {
    Schemas result;
    for (const Json* schema : schemas)
      if (const Json* value = find(*schema, keyword, types)) result.push_back(value);
    return result;
  }

  unsigned types(const Schemas& schemas) const {
    static const std::map<Json, unsigned> known{
        {"null", null},       {"boolean", boolean}, {"object", object}, {"array", array},
        {"integer", integer}, {"number", number},   {"string", string}};
    unsigned result = all_types;
    for (const Json* type : all(schemas, "type", array | string)) {
      spend(type->size());
      const Json names = type->is_array() ? *type : Json::array({*type});
      unsigned types = 0;
      for (const Json& name : names) {
        if (!known.contains(name)) fail("there is no type " + to_text(name));
        types |= known.at(name);
      }
      result &= types;
    }
    if (const auto values = this->values(schemas)) {
      unsigned types = 0;
      for (const Json* value : *values) types |= type_of(*value);
      result &= types;
    }
    return result;
  }

  /// Returns what 'enum' and 'const' allow; nothing: they do not restrict.
  std::optional<Schemas> values(const Schemas& schemas) const {
    std::vector<Schemas> lists;
    for (const Json* list : all(schemas, "enum", array)) {
      lists.emplace_back();
      for (const Json& value : *list) lists.back().push_back(&value);
    }
    for (const Json* value : all(schemas, "const")) lists.push_back({value});
    if (lists.empty()) return std::nullopt;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      spend(i > 0 ? comparisons(lists[i], lists[0]) : lists[0].size());
      if (i > 0) std::erase_if(lists[0], [&](const Json* v) { return !holds(lists[i], *v); });
    }
    return lists[0];
  }

  Limits limits(const Schemas& schemas, const char* min, const char* max) const {
    Limits result;
    const auto count = [&](const Json* value, const char* keyword) {
      const auto exact = value->get<double>();
      if (exact < 0 || exact != std::floor(exact) || exact > X::count_max)
        fail("the keyword '" + std::string(keyword) + "' needs a whole number from 0 to " +
             std::to_string(X::count_max) + ", not " + to_text(*value));
      return static_cast<int>(exact);
    };
    for (const Json* value : all(schemas, min, number))
      result.min = std::max(result.min, count(value, min));
    for (const Json* value : all(schemas, max, number))
      result.max = std::min(result.max < 0 ? X::count_max : result.max, count(value, max));
    return result;
  }

  /// The spellings of the null, booleans, numbers, or strings without their quotes; `comparing`:
  /// also of numbers with more digits than answers have.
  Id scalars(const Schemas& schemas, Type type, bool comparing = false) {
    Id language = type == string    ? strings(schemas)
                  : type == number  ? numbers(schemas, comparing)
                  : type == boolean ? x_.choice({x_.text("true"), x_.text("false")})
                                    : x_.text("null");
    if (const auto values = this->values(schemas)) {
      std::vector<Id> texts;
      for (const Json* value : *values) {
        if (type_of(*value) != type) continue;
        // A number stays as it is written, 1e-7 or 2.0, which its restrictions do not spell.
        if (type == number && language != X::any && !x_.contains(language, decimal_of(*value, x_)))
          continue;
        texts.push_back(
            x_.text(type == string ? value->get<std::string>() : exact_text(*value, x_)));
      }
      const Id choice = x_.choice(std::move(texts));
      language = type == number ? choice : x_.both(language, choice);
    }
    return x_.whole(language);
  }

  /// The schemas of the value of a key, and of an item of an array.
  Schemas of_key(const Schemas& schemas, const std::string& key) {
    Schemas result;
    static const Json nothing(false);
    for (const Json* schema : schemas) {
      const std::size_t before = result.size();
      const Json* properties = find(*schema, "properties", object);
      spend(properties ? properties->size() : 0);
      if (properties && properties->contains(key)) result.push_back(&properties->at(key));
      if (const Json* patterns = find(*schema, "patternProperties", object)) {
        for (const auto& [regex, of_pattern] : patterns->items())
          if (x_.contains(read_regex(regex, x_, true), key)) result.push_back(&of_pattern);
      }
      const Json* additional = find(*schema, "additionalProperties");
      if (result.size() == before && additional) result.push_back(additional);
    }
    for (const Json* schema : all(schemas, "propertyNames"))
      if (!x_.contains(names(*schema), key)) result.push_back(&nothing);
    return result;
  }

  Schemas of_item(const Schemas& schemas, std::size_t at) const {
    Schemas result;
    for (const Json* schema : schemas) {
      const Json* prefix = find(*schema, "prefixItems", array);
      const Json* items = find(*schema, "items");
      if (prefix && at < prefix->size())
        result.push_back(&prefix->at(at));
      else if (items)
        result.push_back(items);
    }
    return result;
  }

  std::vector<std::string> required(const Schemas& schemas) const {
    std::vector<std::string> result;
    for (const Json* names : all(schemas, "required", array)) {
      for (const Json& name : *names) {
        if (!name.is_string()) fail("the keyword 'required' needs names");
        const auto text = name.get<std::string>();
        spend(result.size());
        if (std::ranges::find(result, text) == result.end()) result.push_back(text);
      }
    }
    return result;
  }

  /// The keys that a 'propertyNames' allows.
  Id names(const Json& schema) {
    std::vector<Id> choices;
    for (const Schemas& way : alternatives({&schema}))
      if (types(way) & string) choices.push_back(scalars(way, string));
    return x_.whole(x_.choice(std::move(choices)));
  }

 private:
  std::vector<Schemas> alternatives(const Json& schema) {
    if (schema.is_boolean()) return std::vector<Schemas>(schema.get<bool>() ? 1 : 0);
    if (!schema.is_object()) fail("a schema is an object, true or false, not " + to_text(schema));
    spend(schema.size());
    check_keywords(schema);
    if (std::ranges::find(open_, &schema) != open_.end())
      fail("a '$ref' leads back to its own schema before it describes a value");
    if (open_.size() > references_max) fail("the schema nests deeper than is supported");
    open_.push_back(&schema);
    std::vector<Schemas> result{{&schema}};
    if (const Json* reference = find(schema, "$ref", string))
      result = together(result, alternatives(target(reference->get<std::string>())));
    if (const Json* all = find(schema, "allOf", array))
      for (const Json& part : *all) result = together(result, alternatives(part));
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const Json* options = find(schema, keyword, array);
      if (!options) continue;
      std::vector<std::vector<Schemas>> ways;
      for (const Json& option : *options) ways.push_back(together(result, alternatives(option)));
      if (keyword[0] == 'o' && !is_comparing_) check_disjoint(ways);
      result.clear();
      for (std::vector<Schemas>& way : ways) std::ranges::move(way, std::back_inserter(result));
    }
    open_.pop_back();
    return result;
  }

  std::vector<Schemas> together(const std::vector<Schemas>& a, const std::vector<Schemas>& b) {
    std::vector<Schemas> result;
    for (const Schemas& one : a) {
      for (const Schemas& other : b) {
        spend(way_work);
        if (result.size() > alternatives_max) fail("the schema has too many alternatives");
        Schemas both = one;
        for (const Json* schema : other)
          if (std::ranges::find(one, schema) == one.end()) both.push_back(schema);
        if (types(both) != 0) result.push_back(std::move(both));
      }
    }
    return result;
  }

  const Json& target(const std::string& reference) const {
    if (reference != "#" && !reference.starts_with("#/"))
      fail("'$ref': '" + reference + "' is not within the document; only '#' and '#/...' are read");
    try {
      return document_.at(Json::json_pointer(unescaped(reference.substr(1))));
    } catch (const Json::exception&) {
      fail("'$ref': there is no '" + reference + "'");
    }
  }

  void check_keywords(const Json& schema) const {
    static constexpr std::string_view refused =
        " not if then else contains minContains maxContains dependencies dependentRequired "
        "dependentSchemas unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef "
        "additionalItems nullable uniqueItems maxProperties ";
    for (const auto& [key, value] : schema.items()) {
      // These say nothing alone.
      if ((key == "then" || key == "else") && !schema.contains("if")) continue;
      if ((key == "minContains" || key == "maxContains") && !schema.contains("contains")) continue;
      if ((key == "nullable" || key == "uniqueItems") && value == false) continue;
      if (refused.find(" " + key + " ") != refused.npos || (key == "$id" && &schema != &document_))
        fail("the keyword '" + key + "' is not supported");
    }
  }

  void spend(std::size_t work) const {
    work_ += work;
    if (work_ > schema_work_max)
      fail("the schema has too many alternatives, references, properties or values");
  }

  Id strings(const Schemas& schemas) {
    Id language = X::any;
    for (const Json* pattern : all(schemas, "pattern", string))
      language = x_.both(language, read_regex(pattern->get<std::string>(), x_, true));
    for (const Json* format : all(schemas, "format", string)) {
      const auto name = format->get<std::string>();
      const std::string_view regex = regex_of_format(name);
      if (regex.empty()) fail("the keyword 'format' does not know '" + name + "'");
      language = x_.both(language, read_regex(regex, x_));
    }
    const auto [min, max] = limits(schemas, "minLength", "maxLength");
    if (max >= 0 && max < min) return X::nothing;
    return x_.both(language, x_.repeat(x_.chars(SymbolSet().complement()), min, max));
  }

  Id numbers(const Schemas& schemas, bool comparing) {
    std::vector<Id> restrictions;
    for (const bool strict : {false, true}) {
      for (const Json* bound : all(schemas, strict ? "exclusiveMinimum" : "minimum", number))
        restrictions.push_back(numbers_from(*bound, strict, x_));
      // Below is what is not from the bound on.
      for (const Json* bound : all(schemas, strict ? "exclusiveMaximum" : "maximum", number))
        restrictions.push_back(x_.complement(numbers_from(*bound, !strict, x_)));
    }
    for (const Json* divisor : all(schemas, "multipleOf", number))
      restrictions.push_back(multiples_of(*divisor, x_));
    const bool is_integer = !(types(schemas) & fraction);
    if (restrictions.empty() && !is_integer && values(schemas)) return X::any;
    // Bounds and values say themselves how many digits they take.
    std::size_t digits = values(schemas) || comparing ? 0 : number_digits;
    for (const char* bound : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"})
      for (const Json* value : all(schemas, bound, number))
        if (decimal_of(*value, x_).size() >= number_digits) digits = 0;
    // Remainders times digits are too many states.
    for (const Json* divisor : all(schemas, "multipleOf", number))
      if (*divisor > 100) digits = 0;
    Id language = number_spellings(is_integer, !restrictions.empty(), digits, x_);
    for (const Id restriction : restrictions) language = x_.both(language, restriction);
    return language;
  }

  void check_disjoint(const std::vector<std::vector<Schemas>>& ways) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (!disjoint(ways[k], ways[i], 0))
          fail(
              "the keyword 'oneOf' is enforced only where no value can satisfy two of its "
              "schemas; that is not sure of numbers " +
              std::to_string(k + 1) + " and " + std::to_string(i + 1) + "; use 'anyOf'");
      }
    }
  }

  bool disjoint(const std::vector<Schemas>& a, const std::vector<Schemas>& b, int depth) {
    return std::ranges::all_of(a, [&](const Schemas& x) {
      return std::ranges::all_of(b, [&](const Schemas& y) { return disjoint(x, y, depth); });
    });
  }

  bool disjoint(const Schemas& a, const Schemas& b, int depth) {
    const auto values_a = values(a), values_b = values(b);
    spend(way_work + (values_a && values_b ? comparisons(*values_a, *values_b) : 0));
    if (values_a && values_b)
      return std::ranges::none_of(*values_a, [&](const Json* v) { return holds(*values_b, *v); });
    const unsigned shared = types(a) & types(b);
    for (const Type type : {null, boolean, number, string}) {
      if (!(shared & type)) continue;
      if (type == number && (values_a || values_b)) return false;  // 2 and 2.0 are one value
      if (!x_.is_empty(x_.both(scalars(a, type, true), scalars(b, type, true)))) return false;
    }
    if (shared & array) {
      const Limits x = limits(a, "minItems", "maxItems"), y = limits(b, "minItems", "maxItems");
      if (!(x.max >= 0 && x.max < y.min) && !(y.max >= 0 && y.max < x.min)) return false;
    }
    if (!(shared & object)) return true;
    if (depth > compared_depth_max) return false;
    // What satisfies both has each key that one of them requires, with a value for both.
    const auto differs = [&](const std::string& key) {
      return disjoint(alternatives(of_key(a, key)), alternatives(of_key(b, key)), depth + 1);
    };
    const bool was_comparing = std::exchange(is_comparing_, true);
    const Schemas open = std::exchange(open_, {});
    const bool result =
        std::ranges::any_of(required(a), differs) || std::ranges::any_of(required(b), differs);
    open_ = open;
    is_comparing_ = was_comparing;
    return result;
  }

  const Json& document_;
  Expressions& x_;
  Schemas open_;  // those whose alternatives are being looked for
  bool is_comparing_ = false;
  mutable std::size_t work_ = 0;
};

/// Writes the rules of a schema's values: a rule for each set of schemas that hold together.
class SchemaWriter {
 public:
  using enum SchemaReader::Type;

  /// Adds to `rules`, whose first one is white space.
  SchemaWriter(const Json& schema, Expressions& expressions, std::vector<Grammar::Rule>& rules)
      : x_(expressions), rules_(rules), reader_(schema, x_), root_(value_of({&schema})) {}

  /// A call of the rule of the document's values.
  Id write() {
    // No recursion: schemas nest and refer to each other as deeply as they want to.
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const auto [rule, schemas] = waiting_[i];
      std::vector<Id> choices;
      for (const Schemas& way : reader_.alternatives(schemas)) choices.push_back(value(way));
      rules_[rule].body = x_.choice(std::move(choices));
    }
    return root_;
  }

 private:
  struct Property {
    std::string name;
    Schemas schemas;
    bool required;
  };
  /// Keys that are not declared, by what holds of their values.
  struct Region {
    Id keys;
    Schemas schemas;
    bool matched = false;  // by a pattern of the schema at hand
  };

  Id rule(const std::string& name, Id body) {
    rules_.push_back({name, body});
    return x_.one(first_rule + static_cast<char32_t>(rules_.size() - 1));
  }

  /// A call of the rule of a value that satisfies all of some schemas.
  Id value_of(const Schemas& schemas) {
    const auto [entry, is_new] = values_.try_emplace(schemas);
    if (!is_new) return entry->second;
    if (waiting_.size() >= schema_rules_max) reader_.fail("the schema describes too many values");
    waiting_.emplace_back(rules_.size(), schemas);
    return entry->second = rule("value " + std::to_string(waiting_.size()), X::nothing);
  }

  Id value(const Schemas& way) {
    const unsigned types = reader_.types(way);
    std::vector<Id> choices;
    for (const auto type : {null, boolean, number})
      if (types & type) choices.push_back(reader_.scalars(way, type));
    if (types & string)
      choices.push_back(x_.sequence({quote_, reader_.scalars(way, string), quote_}));
    const auto values = reader_.values(way);
    if (!values && (types & array)) choices.push_back(array_of(way));
    if (!values && (types & object)) choices.push_back(object_of(way));
    for (const Json* value : values.value_or(Schemas())) {
      if (!(SchemaReader::type_of(*value) & types & (array | object))) continue;
      check_has_no_parts(way, value->is_array());
      choices.push_back(x_.bytes(exact_text(*value, x_)));
    }
    return x_.choice(std::move(choices));
  }

  void check_has_no_parts(const Schemas& way, bool is_array) const {
    const std::vector<const char*> keywords =
        is_array ? std::vector{"prefixItems", "items", "minItems", "maxItems"}
                 : std::vector{"properties",    "patternProperties", "additionalProperties",
                               "propertyNames", "required",          "minProperties"};
    for (const char* keyword : keywords)
      if (!reader_.all(way, keyword).empty())
        reader_.fail("objects and arrays in 'enum' or 'const' beside the keyword '" +
                     std::string(keyword) + "' are not supported");
  }

  /// White space follows opening brackets and commas, and is before closing brackets.
  Id with_space(std::string_view text, Id rest) {
    return x_.sequence({x_.bytes(text), space_, rest});
  }
  Id close(std::string_view bracket) { return x_.sequence(space_, x_.bytes(bracket)); }

  Id array_of(const Schemas& way) {
    const auto [min, max] = reader_.limits(way, "minItems", "maxItems");
    std::size_t single = 1;  // items that have rules of their own; those after them have one
    for (const Json* prefix : reader_.all(way, "prefixItems", array))
      single = std::max(single, prefix->size());
    if (max >= 0) single = std::min(single, static_cast<std::size_t>(max));
    const Id none = min == 0 ? x_.bytes("[]") : X::nothing;
    if (max >= 0 && (max < min || max == 0)) return max < min ? X::nothing : none;
    const int left = static_cast<int>(single);
    // From the last item to the first.
    const Id further = with_space(",", value_of(reader_.of_item(way, single)));
    Id rest = x_.sequence(x_.repeat(further, std::max(min - left, 0), max < 0 ? max : max - left),
                          close("]"));
    for (std::size_t i = single; i-- > 1;) {
      const Id item = with_space(",", x_.sequence(value_of(reader_.of_item(way, i)), rest));
      rest = x_.choice({static_cast<int>(i) >= min ? close("]") : X::nothing, item});
    }
    return x_.choice({none, with_space("[", x_.sequence(value_of(reader_.of_item(way, 0)), rest))});
  }

  std::vector<Property> properties_of(const Schemas& way) {
    const std::vector<std::string> names = reader_.required(way);
    const std::set<std::string> required(names.begin(), names.end());
    std::vector<Property> properties;
    std::map<std::string, bool> known;
    const auto add = [&](const std::string& name) {
      if (std::exchange(known[name], true)) return;
      properties.push_back({name, reader_.of_key(way, name), required.contains(name)});
    };
    for (const Json* declared : reader_.all(way, "properties", object))
      for (const auto& [name, schema] : declared->items()) add(name);
    for (const std::string& name : names) add(name);
    return properties;
  }

  std::vector<Region> regions_of(const Schemas& way, const std::vector<Property>& properties) {
    std::vector<Id> declared;
    for (const Property& property : properties) declared.push_back(x_.text(property.name));
    std::vector<Region> regions{{x_.complement(x_.choice(std::move(declared))), {}}};
    for (const Json* names : reader_.all(way, "propertyNames"))
      regions[0].keys = x_.both(regions[0].keys, reader_.names(*names));
    for (const Json* schema : way) {
      for (Region& region : regions) region.matched = false;
      const Json* patterns = reader_.find(*schema, "patternProperties", object);
      for (auto entry = patterns ? patterns->begin() : schema->end();
           patterns && entry != patterns->end(); ++entry) {
        const Id pattern = read_regex(entry.key(), x_, true);
        std::vector<Region> parts;
        for (const Region& region : regions) {
          Region inside{x_.both(region.keys, pattern), region.schemas, true}, outside = region;
          inside.schemas.push_back(&*entry);
          outside.keys = x_.both(region.keys, x_.complement(pattern));
          if (!x_.is_empty(inside.keys)) parts.push_back(inside);
          if (!x_.is_empty(outside.keys)) parts.push_back(outside);
        }
        regions = std::move(parts);
        if (regions.size() > regions_max)
          reader_.fail("the keyword 'patternProperties' has too many patterns");
      }
      if (const Json* additional = reader_.find(*schema, "additionalProperties"))
        for (Region& region : regions)
          if (!region.matched) region.schemas.push_back(additional);
    }
    std::erase_if(regions, [](const Region& region) { return holds(region.schemas, false); });
    return regions;
  }

  Id member(Id key, const Schemas& schemas) {
    return x_.sequence({quote_, key, quote_, with_space(":", value_of(schemas))});
  }

  Id object_of(const Schemas& way) {
    const std::vector<Property> properties = properties_of(way);
    const int min = reader_.limits(way, "minProperties", "minProperties").min;
    if (min >
        std::max<std::ptrdiff_t>(1, std::ranges::count(properties, true, &Property::required)))
      reader_.fail("the keyword 'minProperties' is supported up to 1 and the count of 'required'");
    std::vector<Id> extras;
    for (const Region& region : regions_of(way, properties))
      extras.push_back(member(x_.whole(region.keys), region.schemas));
    const Id extra = extras.empty() ? X::nothing : rule("another property", x_.choice(extras));
    // From the last property to the first: what may follow where a member was before, and what may
    // follow the opening bracket or a comma.
    Id rest = x_.sequence(x_.repeat(with_space(",", extra), 0, X::unbounded), close("}"));
    Id next = x_.sequence(extra, rest);
    bool may_end = true;
    for (std::size_t i = properties.size(); i-- > 0;) {
      const auto& [name, schemas, is_required] = properties[i];
      const Id own = x_.sequence(member(x_.text(name), schemas), rest);
      may_end = may_end && !is_required;
      // A rule, so that a row of optional properties does not hold all after it again and again.
      const bool skips = !is_required && next != X::nothing;
      next = x_.choice({own, skips ? rule("further properties", next) : X::nothing});
      rest = x_.choice({may_end ? close("}") : X::nothing, with_space(",", next)});
    }
    return x_.choice({may_end && min == 0 ? x_.bytes("{}") : X::nothing, with_space("{", next)});
  }

  Expressions& x_;
  std::vector<Grammar::Rule>& rules_;
  SchemaReader reader_;
  std::map<Schemas, Id> values_;
  std::vector<std::pair<std::size_t, Schemas>> waiting_;
  Id root_;
  Id quote_ = x_.bytes("\""), space_ = x_.one(first_rule);
};

}  // namespace

Expressions::Id schema_rules(const Json& schema, Expressions& expressions,
                             std::vector<Grammar::Rule>& rules) {
  return SchemaWriter(schema, expressions, rules).write();
}

Grammar Grammar::from_json_schema(const Json& schema, const std::string& source) {
  return from_parts(Json::array({Json::array({Json{{"schema", schema}}})}), source);
}

}  // namespace hyb
