#include <doctest/doctest.h>

#include "kernels/linear/library_products.h"

namespace linear_library_products_test {

using namespace hyb::kernels;

TEST_SUITE("kernels/linear/cublaslt_table") {
  TEST_CASE("a library that is missing or another one is reported, and is no error") {
    const char* const none[] = {"libno-such-library.so.1"};
    const CublasLt missing = open_cublaslt(none);
    CHECK(!missing.is_there());
    CHECK(missing.text.find("libno-such-library.so.1") != std::string::npos);
    const char* const others[] = {"libno-such-library.so.1", "libm.so.6"};
    const CublasLt other = open_cublaslt(others);
    CHECK(!other.is_there());
    CHECK(other.text == "libm.so.6 has no cublasLtGetVersion");
  }
}

}  // namespace linear_library_products_test
