#include "core/engine/runner.h"

#include "core/base/error.h"

namespace hyb {

SampledToken Runner::draw(std::span<const float>, const SampleRow&) {
  throw Error(ErrorKind::runtime, "runner: it draws from no logits but those of its steps");
}

}  // namespace hyb
