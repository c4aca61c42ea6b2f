#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "kernels/weight.h"
#include "models/parts/roles.h"

namespace hyb::models {

/// A published matrix, or one of each of E experts, that a part takes rows from.
struct StoredMatrix {
  Role role;
  std::int32_t expert;           ///< whose tensor it is; -1: not of one expert
  std::int64_t rows;             ///< of all experts
  kernels::WeightSource source;  ///< the numbers; empty where a visitor reads none
};

/// Rows of published matrices in the order in which a part reads them, to be packed as one weight.
class MatrixRows {
 public:
  explicit MatrixRows(std::int64_t columns, std::int64_t experts = 1)
      : columns_(columns), source_(experts, 0, columns) {}

  void append(const StoredMatrix& from) { append(from, 0, from.rows); }
  void append(const StoredMatrix& from, std::int64_t first, std::int64_t count);
  /// All rows of another one as wide as this one.
  void append(const MatrixRows& from);
  /// Appends of `count` rows from `first` on first those at even places, then the others.
  void append_alternating(const StoredMatrix& from, std::int64_t first, std::int64_t count);
  /// Columns of `count` rows of another one as rows of this one, which is as wide. Throws
  /// Error(model) unless they are published as F32, BF16 or F16.
  void append_transposed(const StoredMatrix& from, std::int64_t first, std::int64_t count);
  /// All of each expert: first the rows at even places, then the others.
  void append_alternating(const StoredMatrix& from);

  std::int64_t experts() const { return source_.experts; }
  std::int64_t rows() const { return rows_ / experts(); }  ///< of each expert
  std::int64_t columns() const { return columns_; }
  kernels::WeightSource source() const;

  /// Role and expert of the tensors that rows were taken from.
  const std::vector<std::pair<Role, std::int32_t>>& stored() const { return stored_; }
  /// Some rows are columns of a tensor, which therefore has no groups along its own rows.
  bool is_turned() const { return is_turned_; }

 private:
  void note(const StoredMatrix& from);

  std::int64_t columns_;
  std::int64_t rows_ = 0;
  kernels::WeightSource source_;
  std::vector<std::pair<Role, std::int32_t>> stored_;
  bool is_turned_ = false;
};

/// A tensor of several that are joined: its rows, numbers or channels.
struct RoleSize {
  Role role;
  std::int64_t size;
};

/// Storage of a matrix in memory.
enum class Packing : std::uint8_t {
  linear,      ///< as LoadOptions ask
  activation,  ///< plain, in the type of the activations
  f32,         ///< plain, in f32
  head,        ///< as LoadOptions ask of the head
  draft_head,  ///< a copy of it, in q4
};

/// Is shown every weight of a plan, by the parts themselves: what lists the tensors that a plan
/// needs, loads them, or counts their bytes. What a visitor hands out is real only where it loads.
///
/// A role names a tensor; the visitor knows the layer. Matrices are [out, in].
class WeightVisitor {
 public:
  virtual ~WeightVisitor() = default;

  /// Sets the layer that later weights belong to; -1 is the whole model.
  void set_layer(std::int32_t layer) { layer_ = layer; }

  /// Says whether a weight is stored whole under `fused`, or in pieces of which `piece` is one,
  /// that of `expert`. Sizes are the same either way.
  virtual bool is_fused(Role /*fused*/, Role /*piece*/, std::int32_t /*expert*/ = -1) {
    return true;
  }

  /// A tensor [rows, columns].
  StoredMatrix stored(Role role, std::int64_t rows, std::int64_t columns) {
    return visit({.role = role, .rows = rows, .columns = columns});
  }
  /// The tensor [rows, columns] of one routed expert.
  StoredMatrix stored_expert(Role role, std::int32_t expert, std::int64_t rows,
                             std::int64_t columns) {
    return visit({.role = role, .rows = rows, .columns = columns, .expert = expert});
  }
  /// The tensor [experts, rows, columns] of all routed experts, or transposed [experts, columns,
  /// rows].
  StoredMatrix stored_experts(Role role, std::int64_t experts, std::int64_t rows,
                              std::int64_t columns, bool transposed = false) {
    return visit({.role = role,
                  .rows = rows,
                  .columns = columns,
                  .experts = experts,
                  .transposed = transposed});
  }

  /// Packs rows of stored matrices, whose memory may go afterwards.
  virtual kernels::Weight pack(const MatrixRows& rows, Packing packing = Packing::linear) = 0;

  /// Says whether the model's own draft layer has a copy of the head.
  virtual bool copies_head() const { return false; }

  /// Says whether packing these as one weight loses nothing: each alone would be packed in the same
  /// format.
  virtual bool pack_alike(const MatrixRows& a, Packing packing_a, const MatrixRows& b,
                          Packing packing_b) = 0;

  /// A stored matrix as it is.
  kernels::Weight matrix(Role role, std::int64_t rows, std::int64_t columns,
                         Packing packing = Packing::linear);
  /// Stored matrices one below the other, as one: role and rows of each.
  kernels::Weight stacked(std::initializer_list<RoleSize> matrices, std::int64_t columns,
                          Packing packing = Packing::linear);

  /// Matrices [width, width]: of one tensor [count, width, width] under `whole`, or each its own
  /// under `each`, which the index of a layer counts.
  std::vector<kernels::Weight> matrices(Role whole, Role each, std::int64_t count,
                                        std::int64_t width);

  /// A small tensor [count] as f32, `times` times one after the other: [times * count].
  kernels::Tensor vector(Role role, std::int64_t count, std::int64_t times = 1);
  /// A small tensor [count] as f32, every number times `factor`.
  kernels::Tensor scaled_vector(Role role, std::int64_t count, float factor);
  /// Decays of heads [count], below 0: stored as they are under `rate`, or `log` has the logarithm
  /// of what they take away.
  kernels::Tensor rates(Role rate, Role log, std::int64_t count) {
    return rates(rate, log, std::vector<std::int64_t>{count});
  }
  /// The same, stored as a tensor of another shape.
  kernels::Tensor rates(Role rate, Role log, std::vector<std::int64_t> shape);
  /// Small tensors one after the other, as one: role and count of each.
  kernels::Tensor vectors(std::initializer_list<RoleSize> tensors);
  /// Numbers that no file has, as f32.
  kernels::Tensor constants(std::vector<float> numbers, std::initializer_list<std::int64_t> shape);
  /// A small tensor [rows, columns] as f32.
  kernels::Tensor small_matrix(Role role, std::int64_t rows, std::int64_t columns);
  /// A small tensor [experts, count] as f32. `alternating`: of a row the numbers at even places
  /// come first, then the others.
  kernels::Tensor expert_vectors(Role role, std::int64_t experts, std::int64_t count,
                                 bool alternating = false);
  /// Two of them, side by side: [experts, 2 * count].
  kernels::Tensor expert_vectors(Role left, Role right, std::int64_t experts, std::int64_t count);
  /// The taps of a convolution, stored as [channels, 1, width] in one tensor or in several, as f32
  /// [all channels, width]: role and channels of each.
  kernels::Tensor taps(std::initializer_list<RoleSize> tensors, std::int64_t width);

 protected:
  struct Matrix {
    Role role;
    std::int64_t rows, columns;
    std::int64_t experts = 0;  ///< of a tensor of rank 3
    std::int32_t expert = -1;
    bool transposed = false;  ///< stored as [columns, rows]
  };
  /// The numbers of a stored matrix; of the base class none, but their shape.
  virtual kernels::WeightSource numbers(const Matrix& matrix) {
    return {std::max<std::int64_t>(matrix.experts, 1), matrix.rows, matrix.columns};
  }

  struct Small {
    Role role;
    std::vector<std::int64_t> shape;
    std::int64_t times = 1;
    std::int64_t rows = 1;     ///< of the first one of several: each joined to the others' row
    bool alternating = false;  ///< as expert_vectors has it
    float factor = 1.0F;       ///< on every number
    bool is_log = false;       ///< -exp(number) is meant
    std::vector<float> constants = {};  ///< in no file, without a role; else empty

    std::int64_t count() const {  ///< of the tensor
      std::int64_t numbers = 1;
      for (const std::int64_t dimension : shape) numbers *= dimension;
      return numbers;
    }
  };
  /// Their numbers as one list: row by row, each tensor's as often as it says.
  static std::vector<float> joined(std::span<const Small> tensors,
                                   std::span<const std::vector<float>> numbers);
  /// f32 on the queue's device, one after the other; nullptr where none are read.
  virtual float* visit_small(std::span<const Small> tensors) = 0;

  std::int32_t layer() const { return layer_; }

 private:
  StoredMatrix visit(const Matrix& matrix) {
    return {.role = matrix.role,
            .expert = matrix.expert,
            .rows = std::max<std::int64_t>(matrix.experts, 1) * matrix.rows,
            .source = numbers(matrix)};
  }

  std::int32_t layer_ = -1;
};

}  // namespace hyb::models
