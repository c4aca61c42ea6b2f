#pragma once

#include <cstddef>
#include <optional>

#include "core/engine/request.h"

namespace hyb::app {

/// The requests of a workload.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  virtual std::size_t size() const = 0;

  /// Seconds after the begin of the workload at which request i comes; all 0: as soon as there is
  /// room for it.
  virtual double due_s(std::size_t) const { return 0; }

  /// The request that has to be answered before i can be asked: it is the next turn of it.
  virtual std::optional<std::size_t> follows(std::size_t) const { return std::nullopt; }

  /// Request i; called once, when it is sent.
  virtual Request request(std::size_t i) = 0;

  /// Request i was answered.
  virtual void answered(std::size_t, const Completion&) {}
};

}  // namespace hyb::app
