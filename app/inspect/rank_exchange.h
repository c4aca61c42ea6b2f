#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/runtime/model_outline.h"
#include "core/base/json.h"

namespace hyb::app {

/// Bytes that all ranks of one side receive together, and their runs of consecutive bytes; 0 if the
/// model has no such memory.
struct SentBytes {
  std::size_t bytes = 0, runs = 0;
};

/// A sequence's memory, handed over from one number of ranks to another.
struct RankExchange {
  std::int32_t from, to;
  models::Geometry receiver;  ///< of each receiving rank
  SentBytes page = {};        ///< of a page's tokens, all layers
  SentBytes slot = {};        ///< of a sequence's state
};

/// Throws Error(usage) where the model's heads cannot be divided among these ranks.
RankExchange rank_exchange(const ModelOutline& outline, std::int32_t from, std::int32_t to);

/// Rows of inspect's table: what, and what is said about it.
std::vector<std::pair<std::string, std::string>> exchange_rows(const RankExchange& exchange);
Json exchange_json(const RankExchange& exchange);

}  // namespace hyb::app
