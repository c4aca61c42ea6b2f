#pragma once

#include <xmmintrin.h>

namespace hyb::kernels {

/// While it lives, this thread reads denormals as zero and writes zero for them: a recurrent state
/// that fades away would otherwise cost a hundred times more per element.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | flush_and_zero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned flush_and_zero = 0x8040;
  unsigned saved_;
};

}  // namespace hyb::kernels
