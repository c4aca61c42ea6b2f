#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/linear/library_products.h"
#include "tests/support/files.h"

namespace linear_library_products_test {

using namespace hyb::kernels;
using hyb::testing::TemporaryFolder;

TEST_SUITE("kernels/linear/cublaslt_table") {
  TEST_CASE("a library that is missing or another one is reported, and is no error") {
    const std::string none[] = {"libno-such-library.so.1"};
    const CublasLt missing = open_cublaslt(none);
    CHECK(!missing.is_there());
    CHECK(missing.text.find("libno-such-library.so.1") != std::string::npos);
    const std::string others[] = {"libno-such-library.so.1", "libm.so.6"};
    const CublasLt other = open_cublaslt(others);
    CHECK(!other.is_there());
    CHECK(other.text == "libm.so.6 has no cublasLtGetVersion");
  }

  TEST_CASE("where there is one, it is named by its file and version") {
    if (cublaslt_files({}).empty()) {
      MESSAGE("no CUDA toolkit with cuBLASLt here: not tested");
      return;
    }
    const CublasLt library = open_cublaslt();
    CHECK(library.is_there());
    CHECK(library.text.starts_with("/"));
    CHECK(library.text.find("/libcublasLt.so.1") != std::string::npos);
    CHECK(library.text.find(", version 1") != std::string::npos);
  }

  TEST_CASE("files of toolkits and of pip's packages are found, and nothing else is") {
    const TemporaryFolder root;
    const auto library = [&](const std::string& folder, const std::string& name) {
      root.write(folder + "/" + name, "");
      return (root.path() / folder / name).string();
    };
    const std::string toolkit_12 = library("usr/local/cuda-12.8/lib64", "libcublasLt.so.12");
    const std::string toolkit_13 =
        library("usr/local/cuda-13.0/targets/x86_64-linux/lib", "libcublasLt.so.13");
    const std::string packages = "venv/lib/python3.12/site-packages/nvidia/";
    const std::string pip_12 = library(packages + "cublas/lib", "libcublasLt.so.12");
    const std::string pip_13 = library(packages + "cu13/lib", "libcublasLt.so.13");
    const std::string debian =
        library("usr/lib/python3/dist-packages/nvidia/cu13/lib", "libcublasLt.so.13");
    library(packages + "cublas/lib", "libcublasLt.so.11");
    library(packages + "cusparse/lib", "libcublasLt.so.12");
    library("usr/local/other/lib64", "libcublasLt.so.13");
    root.write("file/lib", "no folder");
    std::filesystem::create_directories(root.path() /
                                        "venv/lib/python3.9/site-packages/nvidia/cu13/lib/"
                                        "libcublasLt.so.13");  // no file
    const std::filesystem::path prefixes[] = {root.path() / "venv", root.path() / "missing",
                                              root.path() / "file", root.path() / "usr"};
    CHECK(cublaslt_files(prefixes, root.path()) ==
          std::vector<std::string>{toolkit_13, toolkit_12, pip_13, pip_12, debian});
  }
}

}  // namespace linear_library_products_test
