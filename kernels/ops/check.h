#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/activation.h"
#include "kernels/attention_reach.h"
#include "kernels/device.h"
#include "kernels/ops/kv_pages.h"
#include "kernels/tensor.h"

namespace hyb::kernels {

/// The rules that ops' arguments keep. A broken one is a bug of the caller: Error(runtime) that
/// says "op: rule, got value". Numbers in tables on a card are not read.
class Check {
 public:
  explicit Check(const char* op, Device device = Device::cpu) : op_(op), device_(device) {}

  /// Says whether the caller may read the numbers in tables.
  bool reads_tables() const { return device_ == Device::cpu; }

  void that(bool holds, const char* rule, std::int64_t got) const {
    if (!holds) fail(rule, got);
  }
  /// Neither empty nor of another shape or type.
  void tensor(const Tensor& tensor, const char* name, DType dtype,
              std::initializer_list<std::int64_t> dims) const;
  /// f32 or bf16, as activations are.
  void activations(const Tensor& tensor, const char* name) const;
  /// One of the functions there are.
  void function(const Activation& activation) const;
  /// An i32 table of `count` numbers.
  void table(const Tensor& tensor, const char* name, std::int64_t count) const;

  /// span_begin rises strictly from 0 to `tokens`. Returns the number of spans.
  std::int64_t spans(const Tensor& span_begin, std::int64_t tokens) const;
  /// Slots below `slots`, or -1: nothing is read, or nothing is written.
  void slots(const Tensor& read_slot, const Tensor& write_slot, std::int64_t spans,
             std::int64_t slots) const;
  /// The spans' `tokens` tokens have `numbers` numbers each in the pages; every span's page table
  /// reaches as far as the span, and names pages that there are, from the first position that its
  /// tokens reach. What is before it may be anything.
  void pages(const KvPages& kv, std::int64_t tokens, std::int64_t numbers,
             const AttentionReach& reach) const;

 private:
  [[noreturn]] void fail(const char* rule, std::int64_t got) const;
  [[noreturn]] void fail(const char* name, const char* rule, std::int64_t got) const;

  const char* op_;
  Device device_;
};

}  // namespace hyb::kernels
