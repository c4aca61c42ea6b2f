#include "models/drafting/head.h"

#include <fmt/format.h>

#include "models/drafting/dflash.h"
#include "models/drafting/eagle3.h"

namespace hyb::models {

std::string_view name_of(HeadKind kind) { return kind == HeadKind::eagle3 ? "EAGLE-3" : "DFlash"; }

std::optional<HeadKind> head_kind(const Config& config) {
  if (is_dflash(config)) return HeadKind::dflash;
  if (is_eagle3(config)) return HeadKind::eagle3;
  return std::nullopt;
}

DraftLayer head_of(const Config& config, const Plan& plan) {
  return head_kind(config) == HeadKind::dflash ? dflash_of(config, plan) : eagle3_of(config, plan);
}

const Family& head_family(HeadKind kind) {
  return kind == HeadKind::eagle3 ? eagle3_head : dflash_head;
}

bool is_head_family(const Family& family) {
  return &family == &eagle3_head || &family == &dflash_head;
}

void refuse_head(const Config& config) {
  const std::optional<HeadKind> kind = head_kind(config);
  if (!kind) return;
  config.fail("architectures",
              fmt::format("a head of the kind {} is no model; give it to --draft-model of the one "
                          "it was trained for",
                          name_of(*kind)));
}

}  // namespace hyb::models
