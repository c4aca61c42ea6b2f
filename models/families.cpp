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
      &bailing_hybrid, &bamba,       &cohere2, &falcon_h1, &gemma2,      &gemma3,
      &gemma3n,        &gemma4,      &gpt_oss, &granite,   &granite_swa, &granite_hybrid,
      &jamba,          &kimi_linear, &lfm2,    &lfm3,      &llama,       &llama4,
      &mamba,          &mamba2,      &mellum,  &minimax,   &ministral3,  &nemotron_h,
      &olmo_hybrid,    &qwen2,       &qwen3,   &qwen3_5,   &qwen3_next,  &smollm3,
      &zamba2};
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
