#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/runner.h"

namespace hyb {

/// Holds what an engine and its worker say to each other. A message is a header and a body, without
/// pointers, in the byte order of the machine that both are on. Bytes that are no message are
/// refused with Error(runtime) that says what is wrong with them; a list is as long as the bytes
/// that are there.
using Message = std::vector<std::byte>;

enum class MessageKind : std::uint16_t {
  hello = 1,  ///< of a worker that is ready: its WorkerIdentity
  step,       ///< of the engine: a Step without orders
  result,     ///< its StepResult
  failure,    ///< instead of a result, or of hello: an Error
  heartbeat,  ///< of a worker that is busy
};

struct MessageHeader {
  MessageKind kind;
  std::uint64_t epoch;  ///< of the step, which no other one of the engine has; of hello 0
  std::size_t body_bytes;
};

inline constexpr std::size_t message_header_bytes = 24;
inline constexpr std::size_t message_body_max = std::size_t{1} << 30;

MessageHeader read_header(std::span<const std::byte, message_header_bytes> bytes);
/// Takes a whole message, whose length is checked.
MessageHeader read_header(const Message& message);

/// Lists what both must have alike, as names with their values, always the same names in the same
/// order.
using WorkerIdentity = std::vector<std::pair<std::string, std::string>>;

/// Throws Error(runtime) that names the first difference with both values.
void check_same(const WorkerIdentity& engine, const WorkerIdentity& worker);

/// A step that owns what its views show. What is in it is right by itself (rows and drafts are
/// among the tokens); whether there are such pages and slots the runner checks.
class OwnedStep {
 public:
  explicit OwnedStep(const Message& message);
  OwnedStep(const OwnedStep&) = delete;
  OwnedStep& operator=(const OwnedStep&) = delete;

  const Step& step() const { return step_; }

 private:
  Step step_;
  // Their elements stay where they are.
  std::deque<std::vector<TokenId>> tokens_;
  std::deque<std::vector<PageTable>> tables_;
  std::deque<SamplingParams> params_;
  std::deque<std::vector<std::uint32_t>> masks_;
};

Message hello_message(const WorkerIdentity& identity);
Message step_message(std::uint64_t epoch, const Step& step);
Message result_message(std::uint64_t epoch, const StepResult& result);
Message failure_message(std::uint64_t epoch, ErrorKind kind, std::string_view text);
Message heartbeat_message(std::uint64_t epoch);

WorkerIdentity read_hello(const Message& message);
StepResult read_result(const Message& message);
Error read_failure(const Message& message);

}  // namespace hyb
