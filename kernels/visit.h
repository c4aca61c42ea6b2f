#pragma once

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/floats.h"

namespace hyb::kernels {

/// Carries a type to a generic lambda.
template <typename T>
struct Tag {};

/// Calls body(Tag<T>{}) with the type that activations of `dtype` have.
template <typename Body>
void visit_float(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body(Tag<float>{});
  require(dtype == DType::bf16, "activations are f32 or bf16");
  body(Tag<bf16>{});
}

/// The same for keys and values in pages of `dtype`.
template <typename Body>
void visit_kv(DType dtype, Body&& body) {
  if (dtype == DType::f8_e4m3) return body(Tag<e4m3>{});
  visit_float(dtype, body);
}

}  // namespace hyb::kernels
