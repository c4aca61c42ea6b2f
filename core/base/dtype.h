#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hyb {

/// Element types of safetensors files and of our tensors.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
};

std::size_t size_of(DType dtype);

/// The name safetensors uses: "F32", "BF16", ...
std::string_view name_of(DType dtype);

std::optional<DType> dtype_from_name(std::string_view safetensors_name);

}  // namespace hyb
