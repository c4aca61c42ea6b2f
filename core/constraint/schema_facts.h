#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/constraint/char_automaton.h"

namespace hyb {

/// All that must hold of one value: what the keywords of one or several schemas say, put together.
struct SchemaFacts {
  enum Type : unsigned { null = 1, boolean = 2, object = 4, array = 8, number = 16, string = 32 };
  static constexpr unsigned all_types = 63;
  struct Bound {
    const Json* value;
    bool above, strict;
  };
  struct ObjectKeywords {  ///< of one schema; each may be absent
    const Json *properties = nullptr, *patterns = nullptr, *additional = nullptr;
  };
  struct ArrayKeywords {
    const Json *prefix = nullptr, *items = nullptr;
  };
  struct Choice {
    const Json* options;
    bool exclusive;  ///< oneOf
    std::size_t parent;
  };

  unsigned types = all_types;
  bool integer = false;  ///< numbers are whole
  std::optional<std::vector<const Json*>> values;
  std::vector<std::string> patterns, formats;
  std::int64_t length_min = 0, length_max = -1;
  std::vector<Bound> bounds;
  std::vector<const Json*> divisors;
  std::vector<ObjectKeywords> objects;
  std::vector<std::string> required;
  std::vector<const Json*> names;
  std::int64_t properties_min = 0, properties_max = -1;
  std::vector<ArrayKeywords> arrays;
  std::int64_t items_min = 0, items_max = -1;
  std::vector<Choice> choices;  ///< none is left in finished facts
};

/// Reads the schemas of one document: references, merges and alternatives. The document must
/// outlive it. All throw Error(usage) that begins with `source`.
class SchemaReader {
 public:
  /// Schemas that hold together.
  using Schemas = std::vector<const Json*>;

  SchemaReader(const Json& document, std::string source)
      : document_(document), source_(std::move(source)) {}

  /// The alternatives of a value; none: there is no such value.
  std::vector<SchemaFacts> alternatives(const Schemas& schemas);
  /// The schemas of the value of a key.
  Schemas of_key(const SchemaFacts& facts, const std::string& key);
  /// The schemas of an item of an array.
  static Schemas of_item(const SchemaFacts& facts, std::size_t at);
  CharAutomaton strings(const SchemaFacts& facts);
  CharAutomaton strings(const Schemas& schemas);  ///< of all alternatives
  CharAutomaton numbers(const SchemaFacts& facts);
  const CharAutomaton& pattern(const std::string& regex);
  const std::string& source() const { return source_; }

 private:
  /// A schema on the way from the value's own, by references and merges.
  struct Step {
    const Json* schema;
    std::size_t parent;
  };

  [[noreturn]] void fail(const std::string& what) const;
  void expand(SchemaFacts facts, std::vector<Step> steps, std::size_t next,
              std::vector<SchemaFacts>& found);
  /// False: no value satisfies it.
  bool add(const Json& schema, SchemaFacts& facts);
  void add_values(const Json& schema, SchemaFacts& facts);
  void add_numbers_and_strings(const Json& schema, SchemaFacts& facts);
  void add_objects_and_arrays(const Json& schema, SchemaFacts& facts);
  void check_keywords(const Json& schema) const;
  std::vector<Step> with(std::vector<Step> steps, const Json& schema, std::size_t parent) const;
  const Json& target(const std::string& reference) const;
  bool disjoint(const SchemaFacts& a, const SchemaFacts& b, int depth);
  bool disjoint(const std::vector<SchemaFacts>& a, const std::vector<SchemaFacts>& b, int depth);
  bool objects_disjoint(const SchemaFacts& a, const SchemaFacts& b, int depth);
  std::int64_t count(const Json& value, const char* keyword) const;
  const Json* typed(const Json& schema, const char* keyword, bool is_array) const;

  const Json& document_;
  std::string source_;
  std::map<std::string, CharAutomaton> patterns_;
  std::size_t work_ = 0;
};

}  // namespace hyb
