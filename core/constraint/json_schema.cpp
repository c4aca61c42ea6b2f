#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/constraint/grammar.h"
#include "core/constraint/schema_facts.h"

namespace hyb {
namespace {

using X = Expression;
using Facts = SchemaFacts;
using Schemas = SchemaReader::Schemas;
constexpr std::size_t schema_edges_max = 1'000'000;
constexpr std::size_t schema_rules_max = 50'000;
constexpr std::size_t regions_max = 64;

/// Writes the rules of a schema's values: a rule for each set of schemas that hold together.
class SchemaWriter {
 public:
  SchemaWriter(const Json& schema, const std::string& source)
      : reader_(schema, source), graph_(source, RuleGraph::Spelling::utf8, schema_edges_max) {}

  Grammar write(const Json& schema) {
    space_ = graph_.add_rule("white space");
    const X blank = X::of(CharSet({{' ', ' '}, {'\t', '\t'}}));
    add_expression(space_,
                   X::choice({X::text(""), X::text(" "),
                              X::sequence({X::text("\n"), X::repeat(blank, 0, indent_max)})}));
    const int root = rule_of({&schema});
    // No recursion: schemas nest and refer to each other as deeply as they want to.
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const auto [rule, schemas] = waiting_[i];
      const RuleGraph::Rule place = graph_.rule(rule);
      for (const Facts& facts : reader_.alternatives(schemas))
        add_value(place.start, place.end, facts);
    }
    return Grammar(graph_, root);
  }

 private:
  static constexpr int indent_max = 40;
  static constexpr std::int64_t places_max = 50'000;

  /// States of an object or array: what may come next, and how much there has been.
  using Places = std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t>;
  struct Property {
    std::string name;
    Schemas schemas;
    bool required = false;
  };
  /// Keys that are not declared, by what holds of their values.
  struct Region {
    CharAutomaton keys;
    Schemas schemas;
    std::vector<bool> known;  // by each of the objects' keywords: a pattern matches
  };

  void add_expression(int rule, const X& expression) {
    const RuleGraph::Rule place = graph_.rule(rule);
    graph_.add(place.start, place.end, expression);
  }

  int rule_of(Schemas schemas) {
    std::ranges::sort(schemas);
    schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
    const auto [place, is_new] = rules_.try_emplace(schemas);
    if (!is_new) return place->second;
    if (waiting_.size() >= schema_rules_max) fail("the schema describes too many values");
    place->second = graph_.add_rule("value " + std::to_string(waiting_.size()));
    waiting_.emplace_back(place->second, std::move(schemas));
    return place->second;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::usage, reader_.source() + ": " + what);
  }

  void add_value(std::int32_t from, std::int32_t to, const Facts& facts) {
    if (facts.values) add_values(from, to, facts);
    const unsigned types =
        facts.types & (facts.values ? unsigned{Facts::string} : Facts::all_types);
    if (types & Facts::null) graph_.add(from, to, X::text("null"));
    if (types & Facts::boolean)
      graph_.add(from, to, X::choice({X::text("true"), X::text("false")}));
    if (types & Facts::number)
      reader_.numbers(facts).add_to(graph_, from, to, RuleGraph::Spelling::utf8);
    if (types & Facts::string) add_string(from, to, reader_.strings(facts));
    if (types & Facts::array) add_array(from, to, facts);
    if (types & Facts::object) add_object(from, to, facts);
  }

  void add_string(std::int32_t from, std::int32_t to, const CharAutomaton& language) {
    const std::int32_t begin = graph_.add_state(), end = graph_.add_state();
    graph_.add(from, begin, X::text("\""));
    language.add_to(graph_, begin, end, RuleGraph::Spelling::json);
    graph_.add(end, to, X::text("\""));
  }

  /// The values of enum and const that are not strings.
  void add_values(std::int32_t from, std::int32_t to, const Facts& facts) {
    const bool is_bound = !facts.bounds.empty() || !facts.divisors.empty();
    const bool has_shape = !facts.objects.empty() || !facts.required.empty() ||
                           !facts.names.empty() || facts.properties_min > 0 ||
                           facts.properties_max >= 0 || !facts.arrays.empty() ||
                           facts.items_min > 0 || facts.items_max >= 0;
    for (const Json* value : *facts.values) {
      const bool is_shape = value->is_object() || value->is_array();
      if (is_shape && has_shape &&
          (facts.types & (value->is_object() ? Facts::object : Facts::array)))
        fail(
            "objects and arrays in 'enum' or 'const' beside keywords for their parts are not "
            "supported");
      const bool has_type = facts.types & (value->is_object()    ? Facts::object
                                           : value->is_array()   ? Facts::array
                                           : value->is_number()  ? Facts::number
                                           : value->is_boolean() ? Facts::boolean
                                                                 : Facts::null);
      if (value->is_string() || !has_type) continue;
      if (value->is_number() && (is_bound || facts.integer) &&
          !reader_.numbers(facts).contains(to_text(*value)))
        continue;
      graph_.add(from, to, X::text(to_text(*value)));
    }
  }

  std::int32_t place_of(Places& places, std::int64_t at, std::int64_t count) {
    const auto [place, is_new] = places.try_emplace({at, count}, 0);
    if (is_new) place->second = graph_.add_state();
    return place->second;
  }

  void add_spaced(std::int32_t from, std::int32_t to, std::string_view text) {
    graph_.add(from, to, X::sequence({X::text(text), X::call(space_)}));
  }
  void add_close(std::int32_t from, std::int32_t to, std::string_view text) {
    graph_.add(from, to, X::sequence({X::call(space_), X::text(text)}));
  }

  void add_array(std::int32_t from, std::int32_t to, const Facts& facts) {
    std::int64_t prefix = 0;
    for (const Facts::ArrayKeywords& array : facts.arrays)
      if (array.prefix) prefix = std::max(prefix, static_cast<std::int64_t>(array.prefix->size()));
    const bool bounded = facts.items_max >= 0;
    const std::int64_t last = bounded ? facts.items_max : std::max(prefix, facts.items_min);
    if (facts.items_min > last) return;
    if (last > places_max)
      fail("arrays of more than " + std::to_string(places_max) + " items are not supported");
    if (facts.items_min == 0) graph_.add(from, to, X::text("[]"));
    // After i items; before the first one there is no comma.
    std::int32_t next = graph_.add_state();
    add_spaced(from, next, "[");
    for (std::int64_t i = 0; i < last + (bounded ? 0 : 1); ++i) {
      const int item = rule_of(SchemaReader::of_item(facts, static_cast<std::size_t>(i)));
      const std::int32_t after = graph_.add_state();
      graph_.add_call(next, after, item);
      if (i + 1 >= facts.items_min) add_close(after, to, "]");
      const bool loops = !bounded && i == last;
      const std::int32_t following = loops ? next : graph_.add_state();
      add_spaced(after, following, ",");
      next = following;
    }
  }

  std::vector<Property> properties_of(const Facts& facts) {
    std::vector<Property> properties;
    const auto add = [&](const std::string& name) {
      for (const Property& known : properties)
        if (known.name == name) return;
      const bool required = std::ranges::find(facts.required, name) != facts.required.end();
      properties.push_back({name, reader_.of_key(facts, name), required});
    };
    for (const Facts::ObjectKeywords& object : facts.objects) {
      if (!object.properties) continue;
      for (const auto& [name, schema] : object.properties->items()) add(name);
    }
    for (const std::string& name : facts.required) add(name);
    return properties;
  }

  std::vector<Region> regions_of(const Facts& facts, const std::vector<Property>& properties) {
    std::vector<std::string> names;
    for (const Property& property : properties) names.push_back(property.name);
    Region all{CharAutomaton::all(), {}, std::vector<bool>(facts.objects.size())};
    using Operation = CharAutomaton::Operation;
    const std::string& source = reader_.source();
    if (!names.empty())
      all.keys =
          all.keys.combined(CharAutomaton::of_texts(names, source), Operation::without, source);
    for (const Json* schema : facts.names)
      all.keys = all.keys.combined(reader_.strings(Schemas{schema}), Operation::both, source);
    std::vector<Region> regions{all};
    for (std::size_t i = 0; i < facts.objects.size(); ++i) {
      if (!facts.objects[i].patterns) continue;
      for (const auto& [regex, schema] : facts.objects[i].patterns->items()) {
        std::vector<Region> parts;
        for (Region& region : regions) {
          Region in = region;
          in.keys = region.keys.combined(reader_.pattern(regex), Operation::both, source);
          in.schemas.push_back(&schema);
          in.known[i] = true;
          region.keys = region.keys.combined(reader_.pattern(regex), Operation::without, source);
          for (Region& part : {std::ref(in), std::ref(region)})
            if (!part.keys.empty()) parts.push_back(std::move(part));
        }
        regions = std::move(parts);
        if (regions.size() > regions_max)
          fail("the keyword 'patternProperties' has too many patterns");
      }
    }
    for (Region& region : regions) {
      for (std::size_t i = 0; i < facts.objects.size(); ++i) {
        if (!region.known[i] && facts.objects[i].additional)
          region.schemas.push_back(facts.objects[i].additional);
      }
    }
    std::erase_if(regions, [](const Region& region) {
      return std::ranges::any_of(region.schemas,
                                 [](const Json* schema) { return *schema == false; });
    });
    return regions;
  }

  void add_object(std::int32_t from, std::int32_t to, const Facts& facts) {
    const std::vector<Property> properties = properties_of(facts);
    const std::vector<Region> regions = regions_of(facts, properties);
    const auto count = static_cast<std::int64_t>(properties.size());
    std::int64_t last_required = 0;  // properties up to the last required one
    for (std::int64_t i = 0; i < count; ++i)
      if (properties[static_cast<std::size_t>(i)].required) last_required = i + 1;
    const std::int64_t min = facts.properties_min, max = facts.properties_max;
    if (min > static_cast<std::int64_t>(facts.required.size()) && !regions.empty())
      fail(
          "the keyword 'minProperties' is enforced only where additionalProperties is false, as a "
          "key that is not declared may repeat");
    const bool counts = max >= 0 || min > static_cast<std::int64_t>(facts.required.size());
    if (min <= 0 && last_required == 0) graph_.add(from, to, X::text("{}"));
    if (counts && (count + 1) * (std::max(max, count) + 1) > places_max)
      fail("the keywords 'minProperties' and 'maxProperties' allow too many properties");
    Places expecting, after;  // the first property that may follow, and how many there were
    std::int32_t extra_key = -1;
    if (!regions.empty()) extra_key = add_extra_rule(regions);
    add_spaced(from, place_of(expecting, 0, 0), "{");
    const std::int64_t most = max >= 0 ? max : counts ? count : 0;
    for (std::int64_t i = 0; i <= count; ++i) {
      for (std::int64_t n = 0; n <= most; ++n) {
        const std::int64_t next = counts ? n + 1 : 0;
        const bool has_room = !counts || next <= most;
        const std::int32_t here = place_of(expecting, i, n);
        if (i < count && has_room) {
          const Property& property = properties[static_cast<std::size_t>(i)];
          add_property(here, place_of(after, i + 1, next), property);
        }
        if (i < count && !properties[static_cast<std::size_t>(i)].required)
          graph_.add_empty(here, place_of(expecting, i + 1, n));
        if (i == count && extra_key >= 0 && has_room)
          graph_.add_call(here, place_of(after, count, next), extra_key);
      }
    }
    for (const auto& [key, state] : after) {
      const auto [i, n] = key;
      add_spaced(state, place_of(expecting, i, n), ",");
      if (i >= last_required && (!counts || (min <= n && n <= most))) add_close(state, to, "}");
    }
  }

  void add_property(std::int32_t from, std::int32_t to, const Property& property) {
    const std::int32_t key = graph_.add_state(), value = graph_.add_state();
    add_string(from, key, CharAutomaton::of_texts({property.name}, reader_.source()));
    add_spaced(key, value, ":");
    graph_.add_call(value, to, rule_of(property.schemas));
  }

  int add_extra_rule(const std::vector<Region>& regions) {
    const int index = graph_.add_rule("another property");
    const RuleGraph::Rule place = graph_.rule(index);
    for (const Region& region : regions) {
      const std::int32_t key = graph_.add_state(), value = graph_.add_state();
      add_string(place.start, key, region.keys);
      add_spaced(key, value, ":");
      graph_.add_call(value, place.end, rule_of(region.schemas));
    }
    return index;
  }

  SchemaReader reader_;
  RuleGraph graph_;
  int space_ = 0;
  std::map<Schemas, int> rules_;
  std::vector<std::pair<int, Schemas>> waiting_;
};

}  // namespace

Grammar Grammar::from_json_schema(const Json& schema, const std::string& source) {
  return SchemaWriter(schema, source).write(schema);
}

}  // namespace hyb
