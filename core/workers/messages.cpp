#include "core/workers/messages.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

namespace hyb {
namespace {

constexpr std::uint32_t message_magic = 0x77627968;  // "hybw"
constexpr std::uint16_t message_version = 5;

/// The header as it is sent.
struct RawMessageHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t epoch;
  std::uint64_t body_bytes;
};
static_assert(sizeof(RawMessageHeader) == message_header_bytes);

[[noreturn]] void refuse_message(const std::string& what) {
  throw Error(ErrorKind::runtime, "worker message: " + what);
}

template <typename T>
concept Plain =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_same_v<T, bool>;

class MessageWriter {
 public:
  MessageWriter(MessageKind kind, std::uint64_t epoch) : kind_(kind), epoch_(epoch) {
    bytes_.resize(message_header_bytes);
  }

  template <Plain T>
  void add(T value) {
    add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void add(bool value) { add(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void add_count(std::size_t count) { add(static_cast<std::uint64_t>(count)); }

  template <Plain T>
  void add_list(std::span<const T> list) {
    add_count(list.size());
    add_bytes(std::as_bytes(list));
  }
  void add_text(std::string_view text) { add_list(std::span<const char>(text)); }

  Message take() {
    const std::size_t body = bytes_.size() - message_header_bytes;
    if (body > message_body_max) {
      refuse_message(fmt::format("it would have {} bytes, of {} at most", body, message_body_max));
    }
    const RawMessageHeader header = {.magic = message_magic,
                                     .version = message_version,
                                     .kind = static_cast<std::uint16_t>(kind_),
                                     .epoch = epoch_,
                                     .body_bytes = body};
    std::memcpy(bytes_.data(), &header, sizeof header);
    return std::move(bytes_);
  }

 private:
  void add_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  MessageKind kind_;
  std::uint64_t epoch_;
  Message bytes_;
};

class MessageReader {
 public:
  MessageReader(const Message& message, MessageKind wanted) : left_(message) {
    const MessageHeader header = read_header(message);
    if (header.kind != wanted) {
      refuse_message(fmt::format("it is of kind {}, not {}", static_cast<int>(header.kind),
                                 static_cast<int>(wanted)));
    }
    left_ = left_.subspan(message_header_bytes);
  }

  template <Plain T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  bool take_bool() {
    const auto value = take<std::uint8_t>();
    if (value > 1) refuse_message(fmt::format("{} is neither yes nor no", value));
    return value == 1;
  }

  /// Takes the number of things that take at least `bytes_least` bytes each.
  std::size_t take_count(std::size_t bytes_least) {
    const auto count = take<std::uint64_t>();
    if (count > left_.size() / bytes_least) {
      refuse_message(fmt::format("it ends within a list of {}", count));
    }
    return static_cast<std::size_t>(count);
  }

  template <Plain T>
  std::vector<T> take_list() {
    std::vector<T> list(take_count(sizeof(T)));
    const auto bytes = take_bytes(list.size() * sizeof(T));
    if (!list.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }
  std::string take_text() {
    const std::vector<char> text = take_list<char>();
    return std::string(text.begin(), text.end());
  }

  /// All of it was read.
  void end() const {
    if (!left_.empty()) refuse_message(fmt::format("{} bytes are left over", left_.size()));
  }

 private:
  std::span<const std::byte> take_bytes(std::size_t count) {
    if (count > left_.size()) refuse_message("it ends too early");
    const auto bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }

  std::span<const std::byte> left_;
};

void add_sample(MessageWriter& writer, const SampleRow& row) {
  writer.add(row.token);
  writer.add<SamplingNumbers>(*row.params);
  writer.add_list(std::span<const LogitBias>(row.params->bias));
  writer.add_list(std::span<const TokenId>(row.params->banned));
  writer.add(row.draw);
  writer.add_list(row.history);
  writer.add(row.prompt_tokens);
  writer.add_list(row.mask);
}

/// Its row, parameters, counter and lengths of lists take at least as much.
constexpr std::size_t sample_bytes_least = sizeof(SamplingNumbers) + 48;
constexpr std::size_t span_bytes_least = 48;

void add_span(MessageWriter& writer, const Span& span) {
  writer.add_list(span.tokens);
  writer.add(span.position);
  writer.add_count(span.tables.size());
  for (const PageTable& pages : span.tables) writer.add_list(std::span<const PageId>(pages));
  writer.add(span.read_slot);
  writer.add(span.write_slot);
  writer.add_count(span.samples.size());
  for (const SampleRow& row : span.samples) add_sample(writer, row);
  writer.add(span.drafts);
  writer.add(span.ring);
  writer.add(span.branch_ring);
  writer.add(span.ring_entries);
}

void check_row(const SampleRow& row, std::size_t tokens) {
  if (row.token < 0 || static_cast<std::size_t>(row.token) >= tokens || row.prompt_tokens < 0 ||
      static_cast<std::size_t>(row.prompt_tokens) > row.history.size()) {
    refuse_message(fmt::format("row {} of {} tokens, {} of a prompt in {}", row.token, tokens,
                               row.prompt_tokens, row.history.size()));
  }
}

}  // namespace

MessageHeader read_header(std::span<const std::byte, message_header_bytes> bytes) {
  RawMessageHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.magic != message_magic) refuse_message(fmt::format("it begins with {:08x}", raw.magic));
  if (raw.version != message_version) {
    refuse_message(
        fmt::format("it is of version {}, this is version {}", raw.version, message_version));
  }
  if (raw.kind < static_cast<std::uint16_t>(MessageKind::hello) ||
      raw.kind > static_cast<std::uint16_t>(MessageKind::heartbeat)) {
    refuse_message(fmt::format("there is no kind {}", raw.kind));
  }
  if (raw.body_bytes > message_body_max) {
    refuse_message(fmt::format("it says that it has {} bytes, of {} at most", raw.body_bytes,
                               message_body_max));
  }
  return {.kind = static_cast<MessageKind>(raw.kind),
          .epoch = raw.epoch,
          .body_bytes = static_cast<std::size_t>(raw.body_bytes)};
}

MessageHeader read_header(const Message& message) {
  if (message.size() < message_header_bytes) refuse_message("it ends within its header");
  const MessageHeader header = read_header(std::span(message).first<message_header_bytes>());
  const std::size_t body = message.size() - message_header_bytes;
  if (header.body_bytes != body) {
    refuse_message(fmt::format("it says {} bytes and has {}", header.body_bytes, body));
  }
  return header;
}

void check_same(const WorkerIdentity& engine, const WorkerIdentity& worker) {
  const auto entry = [](const WorkerIdentity& from, std::size_t i) {
    return i < from.size() ? from[i] : std::pair<std::string, std::string>("nothing more", "");
  };
  for (std::size_t i = 0; i < std::max(engine.size(), worker.size()); ++i) {
    const auto [own_name, own] = entry(engine, i);
    const auto [name, value] = entry(worker, i);
    if (name != own_name) {
      throw Error(ErrorKind::runtime,
                  fmt::format("worker: it names {} where the engine names {}", name, own_name));
    }
    if (value != own) {
      throw Error(ErrorKind::runtime,
                  fmt::format("worker: its {} is {}, the engine's is {}", name, value, own));
    }
  }
}

OwnedStep::OwnedStep(const Message& message) {
  MessageReader reader(message, MessageKind::step);
  step_.draft_entries = reader.take_bool();
  const std::size_t spans = reader.take_count(span_bytes_least);
  for (std::size_t i = 0; i < spans; ++i) {
    Span& span = step_.spans.emplace_back(Span{.tokens = {},
                                               .position = 0,
                                               .tables = {},
                                               .read_slot = no_slot,
                                               .write_slot = no_slot,
                                               .samples = {}});
    span.tokens = tokens_.emplace_back(reader.take_list<TokenId>());
    span.position = reader.take<std::int32_t>();
    std::vector<PageTable>& tables = tables_.emplace_back(reader.take_count(sizeof(std::uint64_t)));
    for (PageTable& pages : tables) pages = reader.take_list<PageId>();
    span.tables = tables;
    span.read_slot = reader.take<SlotId>();
    span.write_slot = reader.take<SlotId>();
    const std::size_t rows = reader.take_count(sample_bytes_least);
    for (std::size_t row = 0; row < rows; ++row) {
      SampleRow& sample = span.samples.emplace_back(SampleRow{.params = nullptr});
      sample.token = reader.take<std::int32_t>();
      SamplingParams& params = params_.emplace_back();
      static_cast<SamplingNumbers&>(params) = reader.take<SamplingNumbers>();
      params.bias = reader.take_list<LogitBias>();
      params.banned = reader.take_list<TokenId>();
      sample.params = &params;
      sample.draw = reader.take<std::uint64_t>();
      sample.history = tokens_.emplace_back(reader.take_list<TokenId>());
      sample.prompt_tokens = reader.take<std::int32_t>();
      sample.mask = masks_.emplace_back(reader.take_list<std::uint32_t>());
      check_row(sample, span.tokens.size());
    }
    span.drafts = reader.take<std::int32_t>();
    span.ring = reader.take<RingId>();
    span.branch_ring = reader.take<RingId>();
    span.ring_entries = reader.take<std::int32_t>();
    if (span.tokens.empty() || span.position < 0 || span.ring_entries < 0 || span.drafts < 0 ||
        static_cast<std::size_t>(span.drafts) >= span.tokens.size()) {
      refuse_message(fmt::format("a span of {} tokens from {}, {} drafts, {} entries",
                                 span.tokens.size(), span.position, span.drafts,
                                 span.ring_entries));
    }
  }
  reader.end();
}

Message hello_message(const WorkerIdentity& identity) {
  MessageWriter writer(MessageKind::hello, 0);
  writer.add_count(identity.size());
  for (const auto& [name, value] : identity) {
    writer.add_text(name);
    writer.add_text(value);
  }
  return writer.take();
}

Message step_message(std::uint64_t epoch, const Step& step) {
  require(step.orders.empty() && !step.keep_logits,
          "worker message: the engine's own runner carries out orders and returns logits");
  MessageWriter writer(MessageKind::step, epoch);
  writer.add(step.draft_entries);
  writer.add_count(step.spans.size());
  for (const Span& span : step.spans) add_span(writer, span);
  return writer.take();
}

Message result_message(std::uint64_t epoch, const StepResult& result) {
  MessageWriter writer(MessageKind::result, epoch);
  writer.add_count(result.sampled.size());
  for (const SampledToken& sampled : result.sampled) {
    writer.add(sampled.token);
    writer.add(sampled.finite);
    writer.add(sampled.logprob);
    writer.add_list(std::span<const TokenLogprob>(sampled.top.begin(), sampled.top.end()));
  }
  writer.add(result.draft_entry_seconds);
  return writer.take();
}

Message failure_message(std::uint64_t epoch, ErrorKind kind, std::string_view text) {
  MessageWriter writer(MessageKind::failure, epoch);
  writer.add(static_cast<std::int32_t>(kind));
  writer.add_text(text);
  return writer.take();
}

Message heartbeat_message(std::uint64_t epoch) {
  return MessageWriter(MessageKind::heartbeat, epoch).take();
}

WorkerIdentity read_hello(const Message& message) {
  MessageReader reader(message, MessageKind::hello);
  WorkerIdentity identity;
  const std::size_t count = reader.take_count(2 * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < count; ++i) {
    std::string name = reader.take_text();
    identity.emplace_back(std::move(name), reader.take_text());
  }
  reader.end();
  return identity;
}

namespace {

TopLogprobs take_top(MessageReader& reader) {
  const std::vector<TokenLogprob> tokens = reader.take_list<TokenLogprob>();
  if (tokens.size() > std::size_t{logprobs_max}) {
    refuse_message(fmt::format("{} likeliest tokens, of {} at most", tokens.size(), logprobs_max));
  }
  return TopLogprobs(tokens);
}

}  // namespace

StepResult read_result(const Message& message) {
  MessageReader reader(message, MessageKind::result);
  StepResult result;
  result.sampled.resize(reader.take_count(sizeof(TokenId) + 1 + sizeof(float)));
  for (SampledToken& sampled : result.sampled) {
    sampled.token = reader.take<TokenId>();
    sampled.finite = reader.take_bool();
    sampled.logprob = reader.take<float>();
    sampled.top = take_top(reader);
  }
  result.draft_entry_seconds = reader.take<double>();
  reader.end();
  return result;
}

Error read_failure(const Message& message) {
  MessageReader reader(message, MessageKind::failure);
  const auto kind = reader.take<std::int32_t>();
  const std::string text = reader.take_text();
  reader.end();
  if (kind < static_cast<std::int32_t>(ErrorKind::runtime) ||
      kind > static_cast<std::int32_t>(ErrorKind::memory)) {
    refuse_message(fmt::format("there is no error of kind {}: {}", kind, text));
  }
  return Error(static_cast<ErrorKind>(kind), text);
}

}  // namespace hyb
