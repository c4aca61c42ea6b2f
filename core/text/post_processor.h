#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/json.h"

namespace hyb {

/// The tokens that a raw prompt gets before and behind its own: the `post_processor` of a
/// tokenizer.json, for a single text.
class PostProcessor {
 public:
  using Exists = std::function<bool(TokenId)>;

  /// `json` may be null: nothing is added. `exists` tells which ids there are. Throws Error(model)
  /// that begins with `where`.
  PostProcessor(const Json& json, const std::string& where, const Exists& exists);

  void apply(std::vector<TokenId>& tokens) const;

 private:
  void read(const Json& json, const std::string& where, const Exists& exists, int depth);
  void read_template(const Json& json, const std::string& where, const Exists& exists);
  void read_pair(const Json& json, const std::string& where, const Exists& exists);

  std::vector<TokenId> before_;
  std::vector<TokenId> behind_;
};

}  // namespace hyb
