#include "app/inspect/rank_exchange.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/base/texts.h"
#include "core/base/strings.h"
#include "models/memory_layout.h"
#include "models/shards.h"

namespace hyb::app {
namespace {

SentBytes sent(const models::ShardSide& from, const models::ShardSide& to, ViewId view) {
  SentBytes all;
  for (const models::ShardRun& run : models::shard_runs(from, to, view)) {
    all.bytes += run.bytes;
    ++all.runs;
  }
  return all;
}

std::string sent_text(const SentBytes& sent) {
  return fmt::format("{} in {}", bytes_text(sent.bytes),
                     counted(static_cast<std::int64_t>(sent.runs), "run"));
}

Json sent_json(const SentBytes& sent) { return {{"bytes", sent.bytes}, {"runs", sent.runs}}; }

}  // namespace

RankExchange rank_exchange(const ModelOutline& outline, std::int32_t from, std::int32_t to) {
  models::GeometryOptions sizes = outline.sizes;
  sizes.ranks = from;
  const models::Geometry sender = models::geometry_of(outline.plan, sizes);
  sizes.ranks = to;
  RankExchange exchange = {
      .from = from, .to = to, .receiver = models::geometry_of(outline.plan, sizes)};
  const models::StoreLayout sending = models::flat_memory(sender, 1, 1);
  const models::StoreLayout receiving = models::flat_memory(exchange.receiver, 1, 1);
  const models::ShardSide side = {sender, sending}, other = {exchange.receiver, receiving};
  if (!sender.pages.empty()) exchange.page = sent(side, other, ViewId{0});
  if (!sender.pieces.empty()) exchange.slot = sent(side, other, sending.layout.slot_view());
  return exchange;
}

std::vector<std::pair<std::string, std::string>> exchange_rows(const RankExchange& exchange) {
  const models::Geometry& receiver = exchange.receiver;
  std::string kept, text;
  if (exchange.page.bytes > 0) {
    kept = kv_text(receiver);
    text = fmt::format("a page of {}: {}", counted(receiver.page_tokens, "token"),
                       sent_text(exchange.page));
  }
  if (exchange.slot.bytes > 0) {
    kept += fmt::format("{}{} of state per sequence", kept.empty() ? "" : "; ",
                        bytes_text(receiver.state_bytes_per_sequence));
    text += fmt::format("{}a state: {}", text.empty() ? "" : "; ", sent_text(exchange.slot));
  }
  return {{exchange.to == 1 ? "one rank" : fmt::format("each of {} ranks", exchange.to), kept},
          {fmt::format("{} to {}", counted(exchange.from, "rank"), exchange.to), text}};
}

Json exchange_json(const RankExchange& exchange) {
  const models::Geometry& receiver = exchange.receiver;
  return {{"from", exchange.from},
          {"to", exchange.to},
          {"kv_bytes_per_token_of_rank", receiver.kv_bytes_per_token},
          {"window_kv_bytes_of_rank", receiver.window_kv_bytes},
          {"state_bytes_per_sequence_of_rank", receiver.state_bytes_per_sequence},
          {"page_sent", sent_json(exchange.page)},
          {"slot_sent", sent_json(exchange.slot)}};
}

}  // namespace hyb::app
