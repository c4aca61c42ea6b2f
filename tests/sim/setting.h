#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_model.h"

namespace hyb::sim {

/// The sizes of one scenario.
struct Setting {
  ToyModel model;
  Capacity capacity;
  EngineOptions options;
  const Tokenizer* tokenizer;
  bool is_rough;  ///< steps and sinks fail
  bool is_tight;  ///< so few pages and so long answers that sequences are preempted all the time
};

Setting make_setting(Random& random);

/// Room for drafts; the rest stays as it is.
void add_drafts(Setting& setting, Random& random);

/// `earlier` begins the prompt: it is what another request may have left.
Request make_request(Random& random, const Setting& setting, std::int32_t length_max,
                     std::vector<TokenId> earlier);

/// Binds it by one of a few rules, or by allowed tokens and a least length.
void add_masks(Random& random, Request& request);

}  // namespace hyb::sim
