#pragma once

#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/fp8.h"

namespace hyb::kernels {

/// As what keys and values of type K meet queries and weights, which are rounded to it: K itself,
/// or the smallest type of activations that holds every number of K.
template <typename K>
using KvOperand = std::conditional_t<std::is_same_v<K, e4m3>, bf16, K>;

}  // namespace hyb::kernels
