#include "models/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "core/io/file.h"
#include "models/drafting/head.h"
#include "models/gguf.h"

namespace hyb::models {
namespace {

/// The family with the most similar name; nullptr where none begins with the same letter and needs
/// changes of at most a quarter of the letters: another architecture is no misspelt one.
const Family* nearest_family(std::string_view wanted) {
  const Family* nearest = nullptr;
  std::size_t least = wanted.size() / 4 + 1;
  for (const Family* family : families()) {
    for (const std::string_view model_type : family->model_types) {
      const std::size_t changes = edit_distance(wanted, model_type);
      if (changes >= least || wanted.front() != model_type.front()) continue;
      nearest = family;
      least = changes;
    }
  }
  return nearest;
}

}  // namespace

std::span<const Family* const> families() {
  static constexpr std::array table = {
      &bailing_hybrid::family, &bamba::family,       &cohere2::family,     &falcon_h1::family,
      &gemma::gemma2,          &gemma::gemma3,       &gemma3n::family,     &gemma4::family,
      &gpt_oss::family,        &granite::family,     &granite_swa::family, &granite_hybrid::family,
      &jamba::family,          &kimi_linear::family, &lfm2::family,        &lfm3::family,
      &llama::family,          &llama4::family,      &mamba::family,       &mamba2::family,
      &mellum::family,         &minimax::family,     &ministral3::family,  &nemotron_h::family,
      &olmo_hybrid::family,    &qwen2::family,       &qwen3::family,       &qwen3_next::qwen3_5,
      &qwen3_next::qwen3_next, &smollm3::family,     &zamba2::family};
  return table;
}

Plan plan_of(const Config& config, bool with_drafts) {
  const Family& family = family_of(config);
  refuse_head(config);
  Plan plan = family.plan(config);
  if (with_drafts && family.draft != nullptr) plan.draft = family.draft(config);
  return plan;
}

bool is_of_other_media(std::string_view tensor) {
  return std::ranges::any_of(families(), [&](const Family* family) {
    return std::ranges::any_of(family->unused, [&](std::string_view prefix) {
      const bool is_draft = prefix.find("mtp.") != std::string_view::npos;
      return !is_draft && tensor.starts_with(prefix);
    });
  });
}

const Family& family_of(const Config& config) {
  if (config.has(gguf_key)) return gguf_family(config);
  // A name of a megabyte would take long to compare.
  const std::string wanted = config.model_type().substr(0, 64);
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    for (const std::string_view model_type : family->model_types) {
      if (model_type == wanted) return *family;
      known.push_back(model_type);
    }
  }
  const Family* const nearest = nearest_family(wanted);
  config.fail("model_type",
              fmt::format("{} is not known; {}known are {}", quote_name(wanted),
                          nearest == nullptr ? ""
                                             : fmt::format("the nearest family is {}; ",
                                                           nearest->model_types.front()),
                          fmt::join(known, ", ")));
}

}  // namespace hyb::models
