#pragma once

#include <vector>

#include "core/base/json.h"
#include "core/constraint/expression.h"
#include "core/constraint/grammar.h"

namespace hyb {

/// The language of the JSON values that a schema allows, by rules that this adds to `rules`, of
/// which the first one is white space. The schema must outlive the call only. Throws Error(usage).
Expressions::Id schema_rules(const Json& schema, Expressions& expressions,
                             std::vector<Grammar::Rule>& rules);

}  // namespace hyb
