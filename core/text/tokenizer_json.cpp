#include "core/text/tokenizer_json.h"

#include "core/base/error.h"
#include "core/base/json_builder.h"
#include "core/text/unicode.h"

namespace hyb {
namespace {

std::string in_quotes(std::string_view key) {
  std::string text = "\"";
  text += key;
  return text += '"';
}

}  // namespace

JsonFields::JsonFields(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) fail("an object is expected here");
}

void JsonFields::fail(const std::string& text) const {
  throw Error(ErrorKind::model, where_ + ": " + text);
}

const Json& JsonFields::at(std::string_view key) const {
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? null_json : *found;
}

std::string JsonFields::text(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_string()) fail(in_quotes(key) + " must be a string");
  return value.get<std::string>();
}

std::string JsonFields::text_or(std::string_view key, std::string_view otherwise) const {
  return at(key).is_null() ? std::string(otherwise) : text(key);
}

bool JsonFields::flag_or(std::string_view key, bool otherwise) const {
  const Json& value = at(key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) fail(in_quotes(key) + " must be true or false");
  return value.get<bool>();
}

std::int64_t JsonFields::integer(std::string_view key) const {
  const Json& value = at(key);
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (!fits) fail(in_quotes(key) + " must be an integer");
  return value.get<std::int64_t>();
}

const Json& JsonFields::array(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_array()) fail(in_quotes(key) + " must be a list");
  return value;
}

namespace {

constexpr std::size_t tokenizer_bytes_max = std::size_t{256} << 20;
constexpr int json_depth_max = 64;

/// Keeps the two large tables out of the generic tree, which takes more than ten times the file.
class Reader : public JsonBuilder {
 public:
  explicit Reader(TokenizerFile& file) : JsonBuilder(file.source, json_depth_max), file_(file) {}

  bool null() override { return in_table() ? wrong() : JsonBuilder::null(); }
  bool boolean(bool value) override { return in_table() ? wrong() : JsonBuilder::boolean(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return in_table() ? wrong() : JsonBuilder::number_float(value, text);
  }
  bool number_integer(number_integer_t value) override {
    if (in_table()) return entry(value);
    return JsonBuilder::number_integer(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value < number_unsigned_t{1} << 62;
    if (in_table()) return entry(fits ? static_cast<std::int64_t>(value) : Vocabulary::ids_max);
    return JsonBuilder::number_unsigned(value);
  }

  bool string(string_t& value) override {
    if (!in_table()) return JsonBuilder::string(value);
    if (table_ != Table::merges) return wrong();
    if (in_pair_) {
      pair_part(value);
    } else {
      spaced_pair(value);
    }
    return true;
  }

  bool key(string_t& value) override {
    if (table_ == Table::vocabulary) {
      piece_.swap(value);
      return true;
    }
    if (depth_ == 1) in_model_ = value == "model";
    const bool table_key = depth_ == 2 && in_model_;
    next_ = table_key && value == "vocab"    ? Table::vocabulary
            : table_key && value == "merges" ? Table::merges
                                             : Table::none;
    return JsonBuilder::key(value);
  }

  bool start_object(std::size_t size) override {
    if (in_table()) return wrong();
    if (next_ == Table::vocabulary) table_ = Table::vocabulary;
    next_ = Table::none;
    ++depth_;
    return JsonBuilder::start_object(size);
  }
  bool end_object() override {
    table_ = Table::none;
    --depth_;
    return JsonBuilder::end_object();
  }

  bool start_array(std::size_t size) override {
    if (in_table()) return start_pair();
    if (next_ == Table::merges) table_ = Table::merges;
    next_ = Table::none;
    ++depth_;
    return JsonBuilder::start_array(size);
  }
  bool end_array() override {
    if (in_pair_) return end_pair();
    table_ = Table::none;
    --depth_;
    return JsonBuilder::end_array();
  }

 private:
  enum class Table { none, vocabulary, merges };

  bool in_table() const { return table_ != Table::none; }

  [[noreturn]] bool wrong() const {
    if (table_ == Table::vocabulary)
      fail("model.vocab: the id of \"" + excerpt(piece_) + "\" is not an integer");
    fail("model.merges: entry " + number() + " is neither \"a b\" nor [\"a\", \"b\"]");
  }

  std::string number() const { return std::to_string(file_.merges.size()); }

  bool entry(std::int64_t id) {
    if (table_ != Table::vocabulary) wrong();
    if (id < 0 || id >= Vocabulary::ids_max) {
      fail("model.vocab: the id of \"" + excerpt(piece_) + "\" is out of range; ids are 0 to " +
           std::to_string(Vocabulary::ids_max - 1));
    }
    switch (file_.vocabulary.add(piece_, TokenId{static_cast<std::int32_t>(id)})) {
      case Vocabulary::Added::yes:
        return true;
      case Vocabulary::Added::repeated_piece:
        fail("model.vocab: duplicate key \"" + excerpt(piece_) + "\"");
      case Vocabulary::Added::repeated_id:
        fail("model.vocab: id " + std::to_string(id) + " is given to \"" + excerpt(piece_) +
             "\" and to another piece");
    }
    return false;
  }

  void add_merge(std::string_view left, std::string_view right) {
    if (left.empty() || right.empty())
      fail("model.merges: entry " + number() + " has an empty part");
    file_.add_merge(left, right);
  }

  void spaced_pair(std::string_view text) {
    if (text.starts_with("#version")) return;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      wrong();
    }
    add_merge(text.substr(0, space), text.substr(space + 1));
  }

  bool start_pair() {
    if (table_ != Table::merges || in_pair_) wrong();
    in_pair_ = true;
    pair_parts_ = 0;
    return true;
  }
  void pair_part(string_t& value) {
    if (pair_parts_ == 2) wrong();
    pair_[pair_parts_++].swap(value);
  }
  bool end_pair() {
    if (pair_parts_ != 2) wrong();
    in_pair_ = false;
    add_merge(pair_[0], pair_[1]);
    return true;
  }

  TokenizerFile& file_;
  int depth_ = 0;
  bool in_model_ = false;
  Table next_ = Table::none;  // the value of this key
  Table table_ = Table::none;
  std::string piece_;
  bool in_pair_ = false;
  int pair_parts_ = 0;
  std::string pair_[2];
};

}  // namespace

void TokenizerFile::add_merge(std::string_view left, std::string_view right) {
  if (merge_texts.size() + left.size() + right.size() > UINT32_MAX) {
    fail("the texts of all merges together have 4 GiB or more");
  }
  merges.push_back({static_cast<std::uint32_t>(merge_texts.size()),
                    static_cast<std::uint32_t>(left.size()),
                    static_cast<std::uint32_t>(right.size())});
  merge_texts.append(left).append(right);
}

std::string_view TokenizerFile::left(const Merge& merge) const {
  return std::string_view(merge_texts).substr(merge.begin, merge.left_bytes);
}

std::string_view TokenizerFile::right(const Merge& merge) const {
  return std::string_view(merge_texts).substr(merge.begin + merge.left_bytes, merge.right_bytes);
}

std::string_view TokenizerFile::both(const Merge& merge) const {
  return std::string_view(merge_texts)
      .substr(merge.begin, std::size_t{merge.left_bytes} + merge.right_bytes);
}

void TokenizerFile::fail(const std::string& text) const {
  throw Error(ErrorKind::model, source + ": " + text);
}

TokenizerFile read_tokenizer_json(std::string_view text, std::string_view source) {
  TokenizerFile file;
  file.source = source;
  if (text.size() > tokenizer_bytes_max) {
    file.fail("a tokenizer.json has at most " + std::to_string(tokenizer_bytes_max) +
              " bytes, this one " + std::to_string(text.size()));
  }
  Reader reader(file);
  Json::sax_parse(text.data(), text.data() + text.size(), &reader);
  file.rest = reader.take();
  return file;
}

}  // namespace hyb
