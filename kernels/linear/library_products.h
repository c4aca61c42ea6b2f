#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/buffer.h"

struct CUstream_st;

namespace hyb::kernels {

/// The part of cuBLASLt that a dense product needs, declared here so that nothing of it is needed
/// to build, and held as pointers so that tests can substitute a library of their own. Layouts
/// and numbers are those of cublasLt.h and its kin since CUDA 12.
namespace cublaslt {

using Status = int;
using Object = void*;  ///< opaque: a handle, description, layout or preference

inline constexpr Status success = 0;            ///< CUBLAS_STATUS_SUCCESS
inline constexpr Status alloc_failed = 3;       ///< CUBLAS_STATUS_ALLOC_FAILED
inline constexpr Status invalid_value = 7;      ///< CUBLAS_STATUS_INVALID_VALUE
inline constexpr Status execution_failed = 13;  ///< CUBLAS_STATUS_EXECUTION_FAILED
inline constexpr Status not_supported = 15;     ///< CUBLAS_STATUS_NOT_SUPPORTED

inline constexpr int type_f32 = 0;      ///< CUDA_R_32F
inline constexpr int type_bf16 = 14;    ///< CUDA_R_16BF
inline constexpr int compute_f32 = 68;  ///< CUBLAS_COMPUTE_32F
inline constexpr int transposed = 1;    ///< CUBLAS_OP_T

inline constexpr int desc_transpose_a = 3;  ///< CUBLASLT_MATMUL_DESC_TRANSA, i32
inline constexpr int desc_transpose_b = 4;  ///< CUBLASLT_MATMUL_DESC_TRANSB, i32

inline constexpr int pref_workspace_bytes_max = 1;  ///< ..._PREF_MAX_WORKSPACE_BYTES, u64
inline constexpr int pref_reduction_schemes = 3;    ///< ..._PREF_REDUCTION_SCHEME_MASK, u32
inline constexpr int pref_alignment_a = 5;  ///< ..._PREF_MIN_ALIGNMENT_A_BYTES, u32; B, C, D follow

/// Parts of k are summed in f32 in the workspace (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), in an
/// order that is fixed; the other schemes round every part to y's type. That k is not split is
/// always allowed.
inline constexpr std::uint32_t reduction_in_f32 = 2;

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

}  // namespace cublaslt

/// The functions by their names in libcublasLt, less the `cublasLt`.
struct CublasLtTable {
  using Status = cublaslt::Status;
  using Object = cublaslt::Object;

  std::size_t (*get_version)() = nullptr;
  Status (*create)(Object* handle) = nullptr;
  Status (*destroy)(Object handle) = nullptr;
  Status (*matmul_desc_create)(Object*, int compute_type, int scale_type) = nullptr;
  Status (*matmul_desc_destroy)(Object) = nullptr;
  Status (*matmul_desc_set_attribute)(Object, int attribute, const void* value,
                                      std::size_t bytes) = nullptr;
  Status (*matrix_layout_create)(Object*, int type, std::uint64_t rows, std::uint64_t columns,
                                 std::int64_t column_stride) = nullptr;
  Status (*matrix_layout_destroy)(Object) = nullptr;
  Status (*matmul_preference_create)(Object*) = nullptr;
  Status (*matmul_preference_destroy)(Object) = nullptr;
  Status (*matmul_preference_set_attribute)(Object, int attribute, const void* value,
                                            std::size_t bytes) = nullptr;
  Status (*matmul_algo_get_heuristic)(Object handle, Object desc, Object a, Object b, Object c,
                                      Object d, Object preference, int wanted,
                                      cublaslt::HeuristicResult* results, int* found) = nullptr;
  Status (*matmul)(Object handle, Object desc, const void* alpha, const void* a, Object a_layout,
                   const void* b, Object b_layout, const void* beta, const void* c, Object c_layout,
                   void* d, Object d_layout, const cublaslt::Algorithm*, void* workspace,
                   std::size_t workspace_bytes, CUstream_st*) = nullptr;
};

/// Holds what was found of a library that need not be there.
struct CublasLt {
  std::optional<CublasLtTable> table;
  std::string text;  ///< "/usr/lib/libcublasLt.so.13, version 13.1.0", or why there is none

  bool is_there() const { return table.has_value(); }
};

/// Opens the first of `libraries` that has all functions, and keeps it open until the process ends.
CublasLt open_cublaslt(std::span<const std::string> libraries);

/// cuBLASLt of CUDA 13 or 12: the one that the system's loader finds (LD_LIBRARY_PATH comes first),
/// else the first of cublaslt_files() that works.
CublasLt open_cublaslt();

/// The library's files that are there, of the CUDA toolkits in /usr/local and of the packages that
/// pip installs (PyTorch needs them) below these folders: lib/python3*/site-packages/nvidia/.
std::vector<std::string> cublaslt_files(std::span<const std::filesystem::path> python_prefixes,
                                        const std::filesystem::path& root = "/");

/// Sets where open_cublaslt() looks for Python, at first in /usr/local and /usr. It is called
/// before the first queue is made.
void set_python_prefixes(std::vector<std::filesystem::path> prefixes);

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

/// cuBLASLt's products, where the library is installed. Its choice of an algorithm is requested
/// once per shape, with token counts rounded up so that another prompt's length is no new request
/// (where it refuses that algorithm for the exact count, once for the exact count), and never
/// depends on earlier requests: the same product gives the same bits in every run on a card. For
/// one stream: products share the workspace.
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
  /// library does not take it, which is counted, and logged the first time; Error(runtime) where
  /// its kernel failed.
  bool multiply(CUstream_st* stream, const LibraryProduct& product);

  /// Aligned products that multiply() returned false for.
  std::int64_t refused() const { return refused_; }

 private:
  struct Choice {
    bool is_there = false;
    cublaslt::Algorithm algorithm = {};
  };
  struct Layouts;

  Choice& choose(const LibraryProduct& product, std::int64_t tokens);
  bool try_multiply(CUstream_st* stream, const LibraryProduct& product, std::int64_t tokens);

  CublasLtTable table_;
  Buffer workspace_;
  cublaslt::Object handle_ = nullptr;
  std::int64_t refused_ = 0;
  cublaslt::Status last_status_ = cublaslt::success;  // of an algorithm's choice or use
  /// Choices are kept by outputs, inner, tokens (rounded, or exact where that was refused), strides
  /// and the type of y.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>,
           Choice>
      choices_;
};

}  // namespace hyb::kernels
