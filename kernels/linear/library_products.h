#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "kernels/buffer.h"
#include "kernels/linear/cublaslt_table.h"

namespace hyb::kernels {

/// y[t,n] = (add ? y[t,n] : 0) + scale * sum_k x[t,k] * W[n,k], all in rows, on the device.
struct LibraryProduct {
  const void* x = nullptr;       ///< bf16 [tokens, inner]
  const void* weight = nullptr;  ///< bf16 [outputs, inner]
  void* y = nullptr;             ///< bf16 or f32 [tokens, outputs]
  bool y_is_f32 = false;
  std::int64_t tokens = 0, outputs = 0, inner = 0;
  std::int64_t x_stride = 0, y_stride = 0;  ///< elements from row to row
  float scale = 1.0F;
  bool add = false;
};

/// cuBLASLt's products, where the library is there. Its choice of an algorithm is asked for once
/// per shape, with token counts rounded up so that a prompt's length does not ask again, and never
/// depends on what was asked before: the same product gives the same bits in every run on a card.
/// For one stream: products share the workspace.
class LibraryProducts {
 public:
  static constexpr std::size_t workspace_bytes_usual = 32 << 20;
  static constexpr std::int64_t tokens_step = 128;
  static constexpr std::uint32_t alignment = 16;  ///< of x, weight, y and their rows, in bytes

  /// Throws Error(runtime) where the library does not start.
  LibraryProducts(const CublasLtTable& table, Buffer workspace);
  ~LibraryProducts();
  LibraryProducts(const LibraryProducts&) = delete;
  LibraryProducts& operator=(const LibraryProducts&) = delete;

  /// Puts the product on the stream. False, and nothing done, where it is not aligned or the
  /// library has no algorithm for it; Error(runtime) where the library fails.
  bool multiply(CUstream_st* stream, const LibraryProduct& product);

 private:
  struct Choice {
    bool is_there = false;
    cublaslt::Algorithm algorithm = {};
  };
  struct Layouts;

  const Choice& choose(const LibraryProduct& product);

  CublasLtTable table_;
  Buffer workspace_;
  cublaslt::Object handle_ = nullptr;
  /// By outputs, inner, rounded tokens, strides and the type of y.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>,
           Choice>
      choices_;
};

}  // namespace hyb::kernels
