#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"
#include "kernels/ops/device_sampler.h"
#include "kernels/ops/sample.h"

/// This file has what sampling on a card gives to its kernel and gets back. Included by .cu files
/// only.
namespace hyb::kernels::cuda {

/// Holds what adjust_logits does to one token of a row, in its order.
struct TokenAdjustment {
  std::int32_t token;
  bool is_penalized = false;  ///< by the repetition penalty, then by `penalty`
  bool is_banned = false;
  float penalty = 0.0F;  ///< frequency and presence: subtracted where the token was generated
  float bias = 0.0F;
};

/// The parameters of one row, with the addresses of its own tables: a recorded launch reads them
/// again at every replay.
struct SampleJob {
  SamplingNumbers by;
  std::int32_t adjustments;
  const TokenAdjustment* adjustment;
  float* saved;          ///< room for a logit per adjustment
  double draw;           ///< uniform in [0, 1)
  const unsigned* mask;  ///< SampleRow's; null: all tokens
  bool is_wanted;        ///< false: nothing is drawn, the token is 0
};

struct SampleCandidate {
  float logit;
  std::int32_t id;
};
/// A row has this many at most; the blocks of a row have equal shares of their room.
inline constexpr int sample_candidates_max = 4096;
/// Calls with more rows have one block a row, and need no room for candidates.
inline constexpr std::int64_t sample_split_rows_max = 64;

/// Holds, of logits above minus infinity: how many, and the sum of their weights in units of 2^-44.
struct alignas(16) SampleSums {
  unsigned long long count = 0, mass = 0;
};

/// Holds what the blocks of a row leave for the last one of them, and that one for the next kernel.
struct SampleParts {
  static constexpr int count_max = 32;

  unsigned long long first[count_max], adjusted[count_max];  ///< ranks of the largest logit
  SampleSums sums[count_max];
  int through[count_max];     ///< the last bin of which all are among the candidates
  int candidates[count_max];  ///< how many
  double log_sum;
  float largest;       ///< after adjustments
  bool is_drawn;       ///< false: the row is answered
  unsigned semaphore;  ///< zero between launches
};

/// All on the device.
struct SampleTables {
  const SampleJob* jobs;  ///< one per row
  SampledToken* out;
  SampleParts* parts;           ///< one per row
  SampleCandidate* candidates;  ///< sample_candidates_max per row, of sample_split_rows_max rows
  std::int32_t* tokens;         ///< as DeviceSampler::draw says; null: not wanted
};

/// A row's adjustments are written into its logits [rows, vocab_used or more], and taken back.
void launch_sample(Stream& stream, const Tensor& logits, std::int32_t vocab_used,
                   const SampleTables& tables);

/// The host's side of sampling on a card: rows become tables, the answers are read back.
/// Keeps its memory from call to call; what a recording needs of it stays where it is.
class Sampler final : public DeviceSampler {
 public:
  /// For rounds of at most `rows_max` rows; calls of sample() may have more.
  Sampler(Stream& stream, std::int64_t rows_max);

  void stage(std::span<const SampleRow> rows, std::int64_t count, std::int32_t vocab_used) override;
  void draw(const Tensor& logits, std::int32_t vocab_used, const Tensor& tokens) override;
  void ask(const Tensor& tokens) override;
  std::span<const SampledToken> answers() override;

  /// A whole round. Waits for the answers.
  void sample(const Sample& op);

  static StagedBytes bytes(std::int64_t rows_max);

 private:
  void reserve(std::int64_t rows);
  void add(const SampleRow& row);
  void add_penalties(const SampleRow& row);
  /// The row's one adjustment of this token.
  TokenAdjustment& adjustment_of(TokenId token);
  void stage_adjustments();
  void stage_masks(std::span<const SampleRow> rows);

  Stream& stream_;
  Staging staging_;
  DeviceBytes out_, parts_, candidates_;
  std::int64_t rows_max_ = 0;
  const SampleJob* staged_ = nullptr;  ///< the jobs on the device
  std::int64_t rows_ = 0;              ///< of the round, those that are sampled,
  std::int64_t count_ = 0;             ///< and all
  std::int32_t vocab_used_ = 0;
  bool wants_logprobs_ = false;
  /// Answers on their way.
  struct Asked {
    explicit Asked(Stream& stream) : readback(stream) {}

    Readback readback;
    std::span<const SampledToken> whole;  ///< either these
    std::span<const std::int32_t> ids;    ///< or these
  };
  std::array<Asked, 2> asked_;
  std::size_t asks_ = 0, answered_ = 0;
  std::vector<SampledToken> answers_;
  std::vector<SampleJob> jobs_;
  std::vector<TokenAdjustment> adjustments_;
  std::vector<std::int32_t> place_of_;   ///< of a token among the row's adjustments, -1: none
  std::vector<std::int32_t> generated_;  ///< by adjustment of the row
  std::size_t row_begin_ = 0;            ///< the row's first adjustment
};

}  // namespace hyb::kernels::cuda
