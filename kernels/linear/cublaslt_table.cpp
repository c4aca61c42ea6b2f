#include "kernels/linear/cublaslt_table.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace hyb::kernels {
namespace {

constexpr const char* usual_names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                       "/usr/local/cuda/lib64/libcublasLt.so.13",
                                       "/usr/local/cuda/lib64/libcublasLt.so.12"};

/// The name of the first function that the library lacks, or null.
const char* bind_all(void* library, CublasLtTable& table) {
  const char* missing = nullptr;
  const auto bind = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  bind("cublasLtGetVersion", table.get_version);
  bind("cublasLtCreate", table.create);
  bind("cublasLtDestroy", table.destroy);
  bind("cublasLtMatmulDescCreate", table.matmul_desc_create);
  bind("cublasLtMatmulDescDestroy", table.matmul_desc_destroy);
  bind("cublasLtMatmulDescSetAttribute", table.matmul_desc_set_attribute);
  bind("cublasLtMatrixLayoutCreate", table.matrix_layout_create);
  bind("cublasLtMatrixLayoutDestroy", table.matrix_layout_destroy);
  bind("cublasLtMatmulPreferenceCreate", table.matmul_preference_create);
  bind("cublasLtMatmulPreferenceDestroy", table.matmul_preference_destroy);
  bind("cublasLtMatmulPreferenceSetAttribute", table.matmul_preference_set_attribute);
  bind("cublasLtMatmulAlgoGetHeuristic", table.matmul_algo_get_heuristic);
  bind("cublasLtMatmul", table.matmul);
  return missing;
}

/// 130100 is 13.1.0, as CUBLAS_VERSION is made.
std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

static_assert(sizeof(cublaslt::HeuristicResult) == 96, "as in cublasLt.h");

CublasLt open_cublaslt(std::span<const char* const> libraries) {
  if (libraries.empty()) libraries = usual_names;
  CublasLt found;
  for (const char* const name : libraries) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      if (found.text.empty()) found.text = why == nullptr ? name : why;
      continue;
    }
    CublasLtTable table;
    if (const char* const missing = bind_all(library, table)) {
      found.text = fmt::format("{} has no {}", name, missing);
      ::dlclose(library);
      continue;
    }
    return {.table = table,
            .text = fmt::format("{}, version {}", name, version_text(table.get_version()))};
  }
  return found;
}

}  // namespace hyb::kernels
