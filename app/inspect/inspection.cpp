#include "app/inspect/inspection.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "app/request/generation_config.h"
#include "app/request/model_texts.h"
#include "app/request/sampling_options.h"
#include "app/ui/table.h"
#include "app/ui/text.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/gguf.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace hyb::app {

std::vector<PartGroup> part_groups(const models::Plan& plan) {
  std::vector<PartGroup> groups;
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    for (const models::Block& block : plan.layers[layer].blocks) {
      for (const models::Part& part : block.parts) {
        models::PartText text = std::visit([](const auto& known) { return known.text(); }, part);
        auto same = std::find_if(groups.begin(), groups.end(), [&](const PartGroup& group) {
          return group.kind == text.kind && group.text == text.text;
        });
        if (same == groups.end()) {
          same = groups.insert(same, {std::move(text.kind), std::move(text.text), {}});
        }
        same->layers.push_back(static_cast<std::int32_t>(layer));
      }
    }
  }
  return groups;
}

std::string runs_text(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (std::size_t start = 0; start < numbers.size();) {
    std::size_t end = start + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[start]);
    if (end - start > 1) text += fmt::format("-{}", numbers[end - 1]);
    start = end;
  }
  return text;
}

Json layer_counts(const models::Plan& plan) {
  Json counts = {{"total", plan.layers.size()}};
  for (const PartGroup& group : part_groups(plan)) {
    counts[group.kind] = counts.value(group.kind, std::size_t{0}) + group.layers.size();
  }
  return counts;
}

namespace {

TensorRow row_of(const models::CheckedTensor& checked) {
  return {.name = checked.stored->name,
          .dtype = std::string(checked.stored->dtype_name()),
          .shape = checked.stored->shape,
          .verdict = checked.verdict,
          .note = checked.fault};
}

TensorRow missing_row(const models::RequiredWeight& weight) {
  return {.name = weight.names.front(), .shape = weight.shape, .verdict = TensorVerdict::missing};
}

}  // namespace

const char* verdict_name(TensorVerdict verdict) {
  constexpr std::array names = {"ok", "missing", "wrong", "unused", "extra"};
  return names[static_cast<std::size_t>(verdict)];
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t TensorCheck::count(TensorVerdict verdict) const {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const TensorRow& row) { return row.verdict == verdict; });
}

TensorCheck check_tensors(const models::Plan& plan, const models::Family& family,
                          const TensorFiles& files) {
  TensorCheck check;
  check.files = files.paths().size();
  check.bytes = files.bytes();
  const models::WeightCheck found = models::check_weights(plan, family, files);
  for (const models::CheckedWeight& weight : found.weights) {
    const bool is_missing = weight.tensor.verdict == TensorVerdict::missing;
    check.rows.push_back(is_missing ? missing_row(weight.weight) : row_of(weight.tensor));
    for (const models::CheckedTensor& beside : weight.beside) check.rows.push_back(row_of(beside));
  }
  for (const models::CheckedTensor& other : found.others) check.rows.push_back(row_of(other));
  for (const std::string_view name : files.names()) {
    ++check.dtypes[std::string(files.find(name)->dtype_name())];
  }
  return check;
}

TensorCheck required_tensors(const ModelOutline& outline) {
  TensorCheck check;
  for (const auto& weight : models::required_weights(outline.plan, *outline.family)) {
    check.rows.push_back(missing_row(weight));
  }
  return check;
}

namespace {

/// Returns what `look` says of a text of the model, or its error, which counts as a defect.
template <typename Look>
std::string answer_of(bool& is_usable, bool& has_defects, Look&& look) {
  try {
    std::string text = look();
    is_usable = text != "none";
    return text;
  } catch (const Error& error) {
    has_defects = true;
    return error.what();
  }
}

std::string look_at_tokenizer(const ModelSource& source, std::optional<Tokenizer>& kept) {
  kept = source.tokenizer();
  if (!kept) return "none";
  const Tokenizer& tokenizer = *kept;
  const auto named = [&](const char* name, std::optional<TokenId> token) {
    return token ? fmt::format(", {} {} '{}'", name, index(*token), tokenizer.piece(*token)) : "";
  };
  return fmt::format("{} ids", tokenizer.size()) + named("bos", tokenizer.bos()) +
         named("eos", tokenizer.eos());
}

/// "attn_q" of "blk.7.attn_q.weight".
std::string role_in_gguf(std::string name) {
  if (name.starts_with("blk.")) name.erase(0, std::min(name.find('.', 4), name.size() - 1) + 1);
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name;
}

std::vector<std::pair<std::string, std::string>> look_at_gguf(const ModelSource& source) {
  const auto files = source.gguf();
  if (!files) return {};
  const auto text = [&](const char* key) { return files->metadata().text(key).value_or("none"); };
  std::vector<std::pair<std::string, std::string>> rows = {
      {"GGUF", fmt::format("{}, tokenizer {} {}", text("general.architecture"),
                           text("tokenizer.ggml.model"), text("tokenizer.ggml.pre"))}};
  std::map<std::string, std::set<std::string>> types_of, roles_of;
  for (const GgufTensor* tensor : files->tensors()) {
    const GgufBlock* const block = gguf_block(tensor->type);
    types_of[role_in_gguf(tensor->name)].emplace(block == nullptr ? "other" : block->name);
  }
  for (const auto& [role, types] : types_of) {
    roles_of[fmt::format("{}", fmt::join(types, ", "))].insert(role);
  }
  for (const auto& [types, roles] : roles_of) {
    rows.emplace_back("  " + types, fmt::format("{}", fmt::join(roles, ", ")));
  }
  return rows;
}

std::string traits_text(const TemplateTraits& traits) {
  constexpr std::string_view switches = ", --think on|off";
  const bool is_set = traits.thinking == Thinking::on || traits.thinking == Thinking::off;
  return fmt::format(", thinking: {}{}{}, {}", name_of(traits.thinking),
                     is_set ? " by default" : "", traits.obeys_think ? switches : "",
                     traits.takes_tools ? "takes tools" : "takes no tools");
}

std::string look_at_template(const ModelSource& source, const std::optional<Tokenizer>& tokenizer,
                             std::optional<TemplateTraits>& traits) {
  const auto found = source.chat_template();
  if (!found) return "none";
  const ChatTemplate parsed = ChatTemplate::parse(found->text, found->name);
  if (tokenizer) traits = template_traits(parsed, *tokenizer);
  const std::string names = source.chat_template_names();
  return fmt::format("{} bytes{}{}", found->text.size(), traits ? traits_text(*traits) : "",
                     names == "default" ? "" : "; templates: " + names);
}

/// Reads it as the commands that run the model do, with the end tokens of the other files.
/// The tokenizer, where there is one, is in `texts`.
std::string look_at_generation_config(const ModelSource& source, ModelTexts& texts) {
  read_generation_config(source, texts);
  const SamplingParams sampling = generation_defaults(texts.generation_config, {}).sampling;
  if (!source.read("generation_config.json")) return "none";
  return fmt::format(
      "{}; {}, {} never drawn",
      sampling.temperature == 0.0F ? "greedy" : fmt::format("temperature {}", sampling.temperature),
      counted(std::ssize(texts.stop_tokens), "end-of-answer token"),
      counted(std::ssize(texts.banned_tokens), "token"));
}

std::string positions_text(const models::Plan& plan) {
  if (plan.positions_max == 0) return "not stated";
  return fmt::format("{}{}", plan.positions_max,
                     plan.has_rope() ? "" : " stated; no rope, so more is possible");
}

std::string tensors_text(const Inspection& all) {
  if (!all.missing_files.empty()) return all.missing_files;
  const std::optional<TensorCheck>& tensors = all.tensors;
  if (!tensors) return "none in this folder";
  std::string text = fmt::format("{} in {}, {}; ", tensors->rows.size(),
                                 counted(tensors->files, "file"), bytes_text(tensors->bytes));
  std::string dtypes;
  for (const auto& [dtype, count] : tensors->dtypes) {
    dtypes += fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", count, dtype);
  }
  text += dtypes;
  for (const TensorVerdict verdict : {TensorVerdict::missing, TensorVerdict::wrong,
                                      TensorVerdict::unused, TensorVerdict::extra}) {
    if (const std::int64_t count = tensors->count(verdict)) {
      text += fmt::format("; {} {}", count, verdict_name(verdict));
    }
  }
  return text;
}

bool is_row_shown(TensorVerdict verdict, TensorList list) {
  if (verdict == TensorVerdict::right) return list == TensorList::all;
  const bool is_fault = verdict == TensorVerdict::missing || verdict == TensorVerdict::wrong;
  return is_fault || list != TensorList::faults;
}

Table tensor_table(const TensorCheck& check, TensorList list) {
  Table table = {.columns = columns_of("tensor|dtype|shape|verdict|note")};
  for (const TensorRow& row : check.rows) {
    if (!is_row_shown(row.verdict, list)) continue;
    table.rows.push_back({sanitized_line(row.name), row.dtype, shape_text(row.shape),
                          verdict_name(row.verdict), row.note});
  }
  return table;
}

/// A line for each kind of tensor that is not listed by name.
std::string unlisted_text(const TensorCheck& check, TensorList list) {
  std::string text;
  if (list != TensorList::faults) return text;
  for (const auto& [verdict, what] : {std::pair(TensorVerdict::unused, "known and not used"),
                                      std::pair(TensorVerdict::extra, "not known, and not used")}) {
    if (const std::int64_t count = check.count(verdict)) {
      text += fmt::format("{} tensor{} {}; -v lists {}\n", count, count == 1 ? " is" : "s are",
                          what, count == 1 ? "it" : "them");
    }
  }
  return text;
}

Json tensor_json(const TensorCheck& check) {
  Json list = Json::array();
  for (const TensorRow& row : check.rows) {
    list.push_back({{"name", row.name},
                    {"dtype", row.dtype},
                    {"shape", row.shape},
                    {"verdict", verdict_name(row.verdict)},
                    {"note", row.note}});
  }
  return list;
}

std::string lossless_text(const std::vector<models::LosslessMatrix>& matrices) {
  std::int64_t paying = 0;
  double weights = 0, patches = 0;
  for (const models::LosslessMatrix& matrix : matrices) {
    if (!matrix.sample.pays()) continue;
    const auto count = static_cast<double>(matrix.experts * matrix.rows * matrix.columns);
    ++paying;
    weights += count;
    patches += count * matrix.sample.share();
  }
  return fmt::format("{} of {} matrices by samples; {:.1e} of their numbers are patches", paying,
                     matrices.size(), patches / std::max(1.0, weights));
}

Table lossless_table(const std::vector<models::LosslessMatrix>& matrices) {
  Table table = {.columns = columns_of(">layer|matrix|shape|>patches|>bits")};
  for (const models::LosslessMatrix& matrix : matrices) {
    std::vector<std::int64_t> shape = {matrix.rows, matrix.columns};
    if (matrix.experts > 1) shape.insert(shape.begin(), matrix.experts);
    table.rows.push_back({matrix.layer < 0 ? "" : std::to_string(matrix.layer),
                          std::string(matrix.role.name()), shape_text(shape),
                          fmt::format("{:.1e}", matrix.sample.share()),
                          matrix.sample.pays() ? "12" : "16"});
  }
  return table;
}

Json lossless_json(const std::vector<models::LosslessMatrix>& matrices) {
  Json list = Json::array();
  for (const models::LosslessMatrix& matrix : matrices) {
    list.push_back({{"layer", matrix.layer},
                    {"role", matrix.role.name()},
                    {"experts", matrix.experts},
                    {"rows", matrix.rows},
                    {"columns", matrix.columns},
                    {"patches", matrix.sample.share()},
                    {"bits", matrix.sample.pays() ? 12 : 16}});
  }
  return list;
}

/// "attention, moe; for --spec auto and mtp".
std::string draft_layer_text(const models::DraftLayer& draft) {
  std::string text;
  for (const models::Layer& layer : draft.layers) {
    for (const models::Block& block : layer.blocks) {
      for (const models::Part& part : block.parts) {
        if (!text.empty()) text += ", ";
        text += std::visit([](const auto& known) { return known.text().kind; }, part);
      }
    }
  }
  return text + "; for --spec auto and mtp";
}

}  // namespace

Inspection inspect(const RunSettings& settings) {
  const ModelSource& source = settings.source;
  Inspection all = {.name = source.name(), .outline = outline_of(settings)};
  all.lossless = sample_lossless(settings, all.outline);
  const ModelOutline& outline = all.outline;
  const models::Roofline roofline(outline.plan, outline.geometry);
  all.parameters = models::parameters(models::required_weights(outline.plan, *outline.family));
  all.active_parameters = roofline.active_parameters() + roofline.head_parameters();
  all.weight_bytes = weight_bytes(outline.plan, settings.device, outline.geometry.load);
  all.decode_bytes =
      roofline
          .step({.sequences = 1, .tokens = 1, .position = Inspection::decode_position, .rows = 1})
          .bytes;
  const models::Plan drafting = models::plan_of(outline.config, true);
  std::optional<TensorFiles> files;
  if (source.has_tensors()) files.emplace(source.tensors());
  const bool has_draft_layer =
      drafting.draft && (!files || models::has_draft_layer(*outline.family, *files));
  if (has_draft_layer) all.draft_layer = draft_layer_text(*drafting.draft);
  if (files) {
    all.tensors = check_tensors(has_draft_layer ? drafting : outline.plan, *outline.family, *files);
  }
  all.gguf = look_at_gguf(source);
  all.missing_files = missing_files_text(source, outline);
  const auto missing = source.missing_files();
  all.is_partial = missing && missing->names.size() < missing->listed;
  ModelTexts texts;
  all.tokenizer = answer_of(all.has_tokenizer, all.has_defects,
                            [&] { return look_at_tokenizer(source, texts.tokenizer); });
  all.chat_template = answer_of(all.has_chat_template, all.has_defects, [&] {
    return look_at_template(source, texts.tokenizer, all.traits);
  });
  bool has_generation_config = false;
  all.generation_config =
      all.has_defects ? "not checked" : answer_of(has_generation_config, all.has_defects, [&] {
        return look_at_generation_config(source, texts);
      });
  return all;
}

std::string inspection_text(const Inspection& all, TensorList list, bool has_overview) {
  const models::Plan& plan = all.outline.plan;
  const models::Geometry& geometry = all.outline.geometry;
  Table table = {.columns = {{}, {}}, .rows = {}};
  const auto add = [&](const std::string& what, const std::string& text) {
    table.rows.push_back({what, sanitized_line(text)});
  };
  add("model", all.name);
  add("model_type", plan.family);
  add("parameters", fmt::format("{}, {} per token", parameters_text(all.parameters),
                                parameters_text(all.active_parameters)));
  add("width", fmt::format("{}, vocabulary {}{}", plan.width, plan.vocab,
                           plan.tied_head ? ", tied head" : ""));
  add("layers", std::to_string(plan.layers.size()));
  if (plan.altup) {
    add("  streams", fmt::format("{} residual streams (AltUp), active is {}", plan.altup->streams,
                                 plan.altup->active));
  }
  if (plan.low_rank() > 0) {
    add("  low rank", fmt::format("residuals of rank {} beside attention", plan.low_rank()));
  }
  for (const PartGroup& group : part_groups(plan)) {
    add("  " + group.kind, fmt::format("{} ({}): {}", counted(std::ssize(group.layers), "layer"),
                                       runs_text(group.layers), group.text));
  }
  if (!all.draft_layer.empty()) add("draft layer", all.draft_layer);
  add("positions", positions_text(plan));
  add("weights",
      fmt::format("{} in memory, {}", bytes_text(all.weight_bytes), weights_name(geometry.load)));
  if (!all.lossless.empty()) add("  in 12 bits", lossless_text(all.lossless));
  add("keys and values", fmt::format("{}, {}", kv_text(geometry), name_of(geometry.kv_dtype)));
  add("state",
      fmt::format("{} per sequence, {}; {} as an int8 snapshot",
                  bytes_text(geometry.state_bytes_per_sequence), name_of(geometry.state_dtype),
                  bytes_text(models::snapshot_layout(geometry).bytes)));
  if (all.exchange) {
    for (const auto& [what, text] : exchange_rows(*all.exchange)) add("  " + what, text);
  }
  add("decode", fmt::format("{} moved per token at position {}",
                            bytes_text(static_cast<std::size_t>(all.decode_bytes)),
                            Inspection::decode_position));
  add("tensors", tensors_text(all));
  for (const auto& [what, text] : all.gguf) add(what, text);
  add("tokenizer", all.tokenizer);
  add("chat template", all.chat_template);
  add("generation config", all.generation_config);
  std::string text = has_overview ? plain_text(table) : sanitized_line(all.name) + '\n';
  if (!all.lossless.empty() && list == TensorList::all) {
    text += '\n' + plain_text(lossless_table(all.lossless));
  }
  if (!all.tensors && list != TensorList::all) return text;
  const TensorCheck check = all.tensors ? *all.tensors : required_tensors(all.outline);
  const Table tensors = tensor_table(check, list);
  if (!tensors.rows.empty()) text += '\n' + plain_text(tensors);
  const std::string unlisted = unlisted_text(check, list);
  return unlisted.empty() ? text : text + '\n' + unlisted;
}

Json inspection_json(const Inspection& all, bool all_tensors) {
  const models::Plan& plan = all.outline.plan;
  const models::Geometry& geometry = all.outline.geometry;
  Json parts = Json::array();
  for (const PartGroup& group : part_groups(plan)) {
    parts.push_back({{"kind", group.kind}, {"text", group.text}, {"layers", group.layers}});
  }
  Json json = {{"model", all.name},
               {"model_type", plan.family},
               {"parameters", all.parameters},
               {"active_parameters", all.active_parameters},
               {"width", plan.width},
               {"vocab", plan.vocab},
               {"tied_head", plan.tied_head},
               {"layers", layer_counts(plan)},
               {"parts", parts},
               {"draft_layer", all.draft_layer.empty() ? Json() : Json(all.draft_layer)},
               {"positions_max", plan.positions_max},
               {"has_rope", plan.has_rope()},
               {"dtype", name_of(all.outline.geometry.load.activation)},
               {"quantize", models::name_of(geometry.load.quantize)},
               {"lossless", geometry.load.lossless},
               {"lossless_matrices", lossless_json(all.lossless)},
               {"weights_bytes", all.weight_bytes},
               {"kv_dtype", name_of(geometry.kv_dtype)},
               {"state_dtype", name_of(geometry.state_dtype)},
               {"kv_bytes_per_token", geometry.kv_bytes_per_token},
               {"window_kv_bytes", geometry.window_kv_bytes},
               {"state_bytes_per_sequence", geometry.state_bytes_per_sequence},
               {"slot_bytes", geometry.slot_bytes},
               {"snapshot_bytes_int8", models::snapshot_layout(geometry).bytes},
               {"page_tokens", geometry.page_tokens},
               {"ranks", all.exchange ? exchange_json(*all.exchange) : Json()},
               {"decode_bytes", all.decode_bytes},
               {"decode_position", Inspection::decode_position},
               {"has_tokenizer", all.has_tokenizer},
               {"tokenizer", all.tokenizer},
               {"has_chat_template", all.has_chat_template},
               {"chat_template", all.chat_template},
               {"generation_config", all.generation_config},
               {"thinking", nullptr},
               {"obeys_think", nullptr},
               {"takes_tools", nullptr},
               {"missing_files", all.missing_files.empty() ? Json() : Json(all.missing_files)},
               {"tensors", nullptr}};
  if (all.traits) {
    json["thinking"] = name_of(all.traits->thinking);
    json["obeys_think"] = all.traits->obeys_think;
    json["takes_tools"] = all.traits->takes_tools;
  }
  if (all.tensors) {
    json["tensors"] = {{"files", all.tensors->files},
                       {"bytes", all.tensors->bytes},
                       {"dtypes", all.tensors->dtypes},
                       {"ok", all.tensors->count(TensorVerdict::right)},
                       {"missing", all.tensors->count(TensorVerdict::missing)},
                       {"wrong", all.tensors->count(TensorVerdict::wrong)},
                       {"unused", all.tensors->count(TensorVerdict::unused)},
                       {"extra", all.tensors->count(TensorVerdict::extra)}};
  }
  if (all_tensors) {
    json["tensor_list"] = tensor_json(all.tensors ? *all.tensors : required_tensors(all.outline));
  }
  return json;
}

}  // namespace hyb::app
