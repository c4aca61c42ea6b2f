#include "kernels/linear/library_products.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/log.h"

namespace hyb::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

std::vector<fs::path> chosen_prefixes = {"/usr/local", "/usr"};

/// The entries of a folder that can be read, whose names begin so, the later names first.
std::vector<fs::path> entries_of(const fs::path& folder, std::string_view beginning) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (at->path().filename().string().starts_with(beginning)) found.push_back(at->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// The file that the loader took for a name.
std::string path_of(void* library, const std::string& name) {
  link_map* map = nullptr;
  const bool is_known = ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return is_known ? map->l_name : name;
}

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

std::vector<std::string> cublaslt_files(std::span<const fs::path> python_prefixes,
                                        const fs::path& root) {
  std::vector<fs::path> folders;
  for (const fs::path& toolkit : entries_of(root / "usr/local", "cuda")) {
    folders.push_back(toolkit / "lib64");
    folders.push_back(toolkit / "targets/x86_64-linux/lib");
  }
  for (const fs::path& prefix : python_prefixes) {
    for (const fs::path& python : entries_of(prefix / "lib", "python3")) {
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        folders.push_back(python / packages / "nvidia/cu13/lib");
        folders.push_back(python / packages / "nvidia/cublas/lib");  // of CUDA 12
      }
    }
  }
  std::vector<std::string> files;
  for (const fs::path& folder : folders) {
    for (const char* const name : library_names) {
      std::error_code ignored;
      if (fs::is_regular_file(folder / name, ignored)) files.push_back(folder / name);
    }
  }
  return files;
}

void set_python_prefixes(std::vector<fs::path> prefixes) { chosen_prefixes = std::move(prefixes); }

CublasLt open_cublaslt() {
  std::vector<std::string> libraries(std::begin(library_names), std::end(library_names));
  CublasLt found = open_cublaslt(libraries);
  if (found.is_there()) return found;
  const CublasLt elsewhere = open_cublaslt(cublaslt_files(chosen_prefixes));
  return elsewhere.text.empty() ? found : elsewhere;
}

CublasLt open_cublaslt(std::span<const std::string> libraries) {
  CublasLt found;
  for (const std::string& name : libraries) {
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
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
            .text = fmt::format("{}, version {}", path_of(library, name),
                                version_text(table.get_version()))};
  }
  return found;
}

namespace cublaslt {

/// Ends with its scope.
class Owned {
 public:
  Owned(Object object, Status (*destroy)(Object)) : object_(object), destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (object_ != nullptr) destroy_(object_);
  }
  operator Object() const { return object_; }  // NOLINT: calls take these

 private:
  Object object_;
  Status (*destroy_)(Object);
};

}  // namespace cublaslt

namespace {

using cublaslt::Object;
using cublaslt::Owned;
using cublaslt::Status;

void check(Status status, const char* call) {
  if (status == cublaslt::success) return;
  if (status == cublaslt::alloc_failed) {
    throw Error(ErrorKind::memory,
                fmt::format("memory: {} found too little; use a smaller --memory, --context or "
                            "model",
                            call));
  }
  throw Error(ErrorKind::runtime,
              fmt::format("cublaslt: {} failed with status {}; remove the library from the "
                          "linker's path to run without it",
                          call, status));
}

Owned make_layout(const CublasLtTable& table, int type, std::int64_t rows, std::int64_t columns,
                  std::int64_t column_stride) {
  Object layout = nullptr;
  check(table.matrix_layout_create(&layout, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), column_stride),
        "cublasLtMatrixLayoutCreate");
  return {layout, table.matrix_layout_destroy};
}

Owned make_description(const CublasLtTable& table) {
  Object desc = nullptr;
  check(table.matmul_desc_create(&desc, cublaslt::compute_f32, cublaslt::type_f32),
        "cublasLtMatmulDescCreate");
  Owned owned(desc, table.matmul_desc_destroy);
  const int transposed = cublaslt::transposed;
  check(table.matmul_desc_set_attribute(desc, cublaslt::desc_transpose_a, &transposed,
                                        sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute");
  return owned;
}

bool is_aligned(const void* data, std::int64_t stride, std::int64_t element_bytes) {
  constexpr std::int64_t alignment = LibraryProducts::alignment;
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0 &&
         stride * element_bytes % alignment == 0;
}

}  // namespace

/// The library's matrices are in columns: what is y = x * W^T in rows is y^T = (W^T)^T * x^T there,
/// of the same bytes.
struct LibraryProducts::Layouts {
  Layouts(const CublasLtTable& table, const LibraryProduct& p, std::int64_t tokens)
      : weight(make_layout(table, cublaslt::type_bf16, p.inner, p.outputs, p.inner)),
        x(make_layout(table, cublaslt::type_bf16, p.inner, tokens, p.x_stride)),
        y(make_layout(table, p.y_is_f32 ? cublaslt::type_f32 : cublaslt::type_bf16, p.outputs,
                      tokens, p.y_stride)),
        description(make_description(table)) {}

  cublaslt::Owned weight, x, y, description;
};

LibraryProducts::LibraryProducts(const CublasLtTable& table, Buffer workspace)
    : table_(table), workspace_(std::move(workspace)) {
  check(table_.create(&handle_), "cublasLtCreate");
}

LibraryProducts::~LibraryProducts() {
  if (refused_ > 0) log::debug(fmt::format("cublaslt: refused {} products", refused_));
  table_.destroy(handle_);
}

LibraryProducts::Choice& LibraryProducts::choose(const LibraryProduct& p, std::int64_t tokens) {
  const auto [at, is_new] =
      choices_.try_emplace({p.outputs, p.inner, tokens, p.x_stride, p.y_stride, p.y_is_f32});
  if (!is_new) return at->second;
  const Layouts layouts(table_, p, tokens);
  Object made = nullptr;
  check(table_.matmul_preference_create(&made), "cublasLtMatmulPreferenceCreate");
  const Owned preference(made, table_.matmul_preference_destroy);
  const auto prefer = [&](int attribute, auto value) {
    check(table_.matmul_preference_set_attribute(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(cublaslt::pref_workspace_bytes_max, std::uint64_t{workspace_.bytes()});
  prefer(cublaslt::pref_reduction_schemes, cublaslt::reduction_in_f32);
  for (int i = 0; i < 4; ++i) prefer(cublaslt::pref_alignment_a + i, alignment);
  cublaslt::HeuristicResult result = {};
  int found = 0;
  const Status status =
      table_.matmul_algo_get_heuristic(handle_, layouts.description, layouts.weight, layouts.x,
                                       layouts.y, layouts.y, preference, 1, &result, &found);
  last_status_ = status;
  if (status == cublaslt::execution_failed) {
    choices_.erase(at);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
  }
  at->second.is_there = status == cublaslt::success && found > 0 &&
                        result.state == cublaslt::success &&
                        result.workspace_bytes <= workspace_.bytes();
  at->second.algorithm = result.algorithm;
  return at->second;
}

bool LibraryProducts::multiply(CUstream_st* stream, const LibraryProduct& p) {
  if (!is_aligned(p.x, p.x_stride, 2) || !is_aligned(p.weight, p.inner, 2) ||
      !is_aligned(p.y, p.y_stride, p.y_is_f32 ? 4 : 2)) {
    return false;
  }
  const std::int64_t rounded = (p.tokens + tokens_step - 1) / tokens_step * tokens_step;
  if (try_multiply(stream, p, rounded)) return true;
  if (rounded != p.tokens && try_multiply(stream, p, p.tokens)) return true;
  if (refused_++ == 0) {
    log::warning(
        fmt::format("cublaslt: refused a product of {} tokens, {} x {} (status {}); such "
                    "products run in slower kernels (said once)",
                    p.tokens, p.outputs, p.inner, last_status_));
  }
  return false;
}

bool LibraryProducts::try_multiply(CUstream_st* stream, const LibraryProduct& p,
                                   std::int64_t tokens) {
  Choice& choice = choose(p, tokens);
  if (!choice.is_there) return false;
  const Layouts layouts(table_, p, p.tokens);
  const float beta = p.add ? 1.0F : 0.0F;
  const Status status = table_.matmul(
      handle_, layouts.description, &p.scale, p.weight, layouts.weight, p.x, layouts.x, &beta, p.y,
      layouts.y, p.y, layouts.y, &choice.algorithm, workspace_.data(), workspace_.bytes(), stream);
  last_status_ = status;
  if (status == cublaslt::success) return true;
  // This status means that the card failed, and no kernel here runs either. With any other status
  // the call started nothing.
  if (status == cublaslt::execution_failed) check(status, "cublasLtMatmul");
  if (tokens == p.tokens) choice.is_there = false;
  return false;
}

}  // namespace hyb::kernels
