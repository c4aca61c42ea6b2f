#pragma once

#include <cstddef>

namespace hyb::kernels {

/// Virtual addresses of this process, for arenas over the machine's own memory. Failures throw
/// Error(memory) that names the call, its bytes and `bytes_held`.
namespace host {

/// A multiple of the system's page, and not 0.
void check_handle_bytes(std::size_t handle_bytes);

/// Addresses that fault, aligned for huge pages.
std::byte* reserve(std::size_t bytes, std::size_t bytes_held);
void unreserve(std::byte* at, std::size_t bytes, std::size_t bytes_held);

/// Puts nothing at a part of a reserved range: touching it faults. False: refused, see errno.
bool clear(std::byte* at, std::size_t bytes);

/// Asks for huge pages: a hint, the bytes are the same without.
void prefer_huge_pages(std::byte* at, std::size_t bytes);

/// Mappings that the system still allows this process, some left aside for others.
std::size_t mappings_max();

[[noreturn]] void refuse(const char* call, std::size_t bytes, int error, std::size_t bytes_held);

}  // namespace host

}  // namespace hyb::kernels
