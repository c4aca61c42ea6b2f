#include "tests/sim/setting.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hyb::sim {
namespace {

const FullAttention full_attention;

/// Superblocks of 60 bytes that hold a few pages, slots or packed snapshots each.
MemoryLayout elastic_layout(Random& random, const ToyModel& model, const FlatSizes& sizes) {
  const auto cut = [&] {
    static constexpr std::int32_t divisors[] = {1, 2, 3, 4, 5, 6};
    return divisors[random.below(std::size(divisors))];
  };
  MemoryLayout layout;
  layout.superblock_bytes = 60;
  std::int32_t superblocks = 0;
  if (model.attention) {
    const std::int32_t pages = cut();
    layout.page_tokens = sizes.page_tokens;
    layout.groups = {{.kind = &full_attention,
                      .page_bytes = static_cast<std::size_t>(60 / pages),
                      .pages_per_superblock = pages}};
    superblocks += (sizes.pages + pages - 1) / pages;
  }
  if (model.recurrence) {
    const std::int32_t slots = cut(), packed = cut();
    layout.slots = {.bytes = static_cast<std::size_t>(60 / slots), .per_superblock = slots};
    layout.packed = {.bytes = static_cast<std::size_t>(60 / packed), .per_superblock = packed};
    superblocks += (sizes.slots + slots - 1) / slots;
  }
  layout.superblocks = superblocks;
  return layout;
}

}  // namespace

Setting make_setting(Random& random) {
  const std::int32_t kind = random.between(0, 7);
  Setting setting = {.model = {.attention = kind != 0, .recurrence = kind != 1},
                     .capacity = {},
                     .options = {.length_max = random.between(2, 60),
                                 .sequences_max = random.between(1, 10),
                                 .chunk_tokens = random.between(1, 20)},
                     .tokenizer = random.chance(70) ? &toy_tokenizer() : nullptr,
                     .is_rough = random.chance(50),
                     .is_tight = kind > 1 && random.chance(30)};
  if (random.chance(20)) setting.model.nan_every = 60;
  const bool attention = setting.model.attention;
  FlatSizes sizes = {.pages = attention ? random.between(2, random.chance(50) ? 12 : 60) : 0,
                     .slots = setting.model.recurrence ? random.between(1, 8) : 0,
                     .page_tokens = attention ? random.between(1, 6) : 0};
  setting.capacity = {.memory = {},
                      .step_tokens = random.between(1, random.chance(30) ? 3 : 40),
                      .sequences_max = random.between(1, 10),
                      .vocab = setting.model.vocab,
                      .step_spans = random.between(1, 16)};
  if (setting.is_tight) {
    sizes.page_tokens = random.between(1, 3);
    sizes.pages = random.between(12, 24) / sizes.page_tokens;
    sizes.slots = 8;
    setting.capacity.sequences_max = 8;
    setting.capacity.step_tokens = random.between(8, 20);
    setting.options.sequences_max = 8;
    setting.options.length_max = 40;
  }
  const bool is_elastic = random.chance(60);
  setting.capacity.memory =
      is_elastic ? elastic_layout(random, setting.model, sizes) : flat_layout(sizes);
  PrefixCacheOptions& prefixes = setting.options.prefixes;
  prefixes.enabled = random.chance(80);
  if (is_elastic && random.chance(40)) prefixes.precision = Precision::int8;
  if (random.chance(30)) prefixes.eviction = EvictionRule::lru;
  prefixes.branch_tokens_min = random.between(1, 8);
  setting.options.shared_tokens_min = random.between(1, 12);
  setting.options.states_ahead = setting.options.length_max % 4;
  return setting;
}

void add_drafts(Setting& setting, Random& random) {
  MemoryLayout& memory = setting.capacity.memory;
  setting.capacity.step_samples = setting.capacity.sequences_max + random.between(1, 20);
  setting.capacity.step_tokens += random.between(0, 10);
  static constexpr std::int32_t counts[] = {1, 3, 5, 7};
  SpeculationOptions& speculation = setting.options.speculation;
  speculation = {.is_on = true, .draft_steps = counts[random.below(std::size(counts))]};
  if (random.chance(50)) {
    setting.capacity.step_branches = random.between(0, 12);
    setting.capacity.step_samples += random.between(0, 20);
    setting.capacity.step_tokens += random.between(0, 40);
    speculation.tree.branches = random.between(2, 5);
    speculation.tree.rows = 1 + speculation.draft_steps + random.between(0, 20);
  }
  if (memory.slots.per_superblock == 0) return;
  const std::int32_t rings = random.between(1, 4);
  memory.rings = {.bytes = memory.superblock_bytes / static_cast<std::size_t>(rings),
                  .per_superblock = rings};
  memory.ring_tokens = random.between(1, drafts_max);
  const std::int32_t superblocks = random.between(0, 3);
  if (!memory.fixed_superblocks.empty()) memory.fixed_superblocks.back() += superblocks;
  memory.superblocks += superblocks;
}

Request make_request(Random& random, const Setting& setting, std::int32_t length_max,
                     std::vector<TokenId> earlier) {
  Request request;
  const auto room = static_cast<std::size_t>(length_max) - 1;
  earlier.resize(std::min(earlier.size(), room));
  request.prompt = std::move(earlier);
  const std::int32_t most = setting.is_tight ? 4 : 30;
  const bool is_again = !request.prompt.empty() && random.chance(30);
  const std::int32_t tokens = is_again ? 0 : random.between(request.prompt.empty() ? 1 : 0, most);
  for (std::int32_t i = 0; i < tokens && request.prompt.size() < room; ++i) {
    request.prompt.push_back(TokenId{random.between(0, setting.model.vocab - 1)});
  }
  const auto length = static_cast<std::int32_t>(request.prompt.size());
  for (std::int32_t end = 1; end <= length; ++end) {
    if (random.chance(4)) request.message_ends.push_back(end);
  }
  request.keep_snapshots = random.chance(90);
  // As chats do, so that the same prompt again runs one token.
  const std::int32_t said = request.message_ends.empty() ? 0 : request.message_ends.back();
  if (random.chance(60) && length - 1 > said) request.message_ends.push_back(length - 1);
  if (random.chance(15)) request.needed_later = random.between(0, length);
  request.max_tokens = setting.is_tight || random.chance(30) ? -1 : random.between(1, 25);
  request.choices = random.chance(60) ? 1 : random.between(2, 5);
  request.sampling.temperature = random.chance(50) ? 0.0F : 1.0F;
  request.sampling.seed = random.bits();
  request.sampling.logprobs = random.chance(80) ? -1 : random.between(0, 3);
  if (random.chance(setting.is_tight ? 20 : 70)) request.stop_tokens = {toy_end};
  request.ignore_eos = random.chance(20);
  request.prefill_only = request.choices == 1 && random.chance(6);
  static const char* const stops[] = {"ab", "aa",   "bca", "aé",          "é",
                                      "€a", "abba", "bab", "\xEF\xBF\xBD"};
  if (setting.tokenizer != nullptr && random.chance(50)) {
    for (int i = random.between(1, 3); i > 0; --i) {
      request.stop.emplace_back(stops[random.below(std::size(stops))]);
    }
  }
  return request;
}

void add_masks(Random& random, Request& request) {
  static const AnswerRule rules[] = {
      {.form = AnswerRule::Form::regex, .text = "(ab|c)*(aa)?", .source = "rule"},
      {.form = AnswerRule::Form::regex, .text = "[ab]{1,9}", .source = "rule"},
      {.form = AnswerRule::Form::regex, .text = "(é|b|€)*", .source = "rule"},
      {.form = AnswerRule::Form::one_of,
       .text = R"(["abba", "cabca", "aab", "ab"])",
       .source = "r"},
      {.form = AnswerRule::Form::gbnf, .text = "root ::= \"a\" root \"b\" | \"c\"", .source = "g"}};
  if (random.chance(30)) {
    for (std::int32_t i = 0; i < 16; ++i) {
      if (random.chance(50)) request.allowed.push_back(TokenId{i});
    }
    if (request.stop.empty()) request.min_tokens = random.between(0, 6);
    return;
  }
  request.stop.clear();
  request.stop_tokens = {toy_end};
  request.rule = toy_rules().get(rules[random.below(std::size(rules))]);
  request.min_tokens = random.chance(30) ? random.between(1, 4) : 0;
}

}  // namespace hyb::sim
