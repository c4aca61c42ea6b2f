#pragma once

#include <array>
#include <mutex>

#include "kernels/arena/cuda_arena.h"
#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/runtime/machine.h"
#include "tests/kernels/arena/fake_driver.h"

namespace emulator {

/// The FakeDriver that lives, with as many devices as there are cards.
inline hyb::kernels::testing::FakeDriver& fake_driver() {
  auto& fake = hyb::kernels::testing::FakeDriver::current();
  fake.set_devices(machine().cards, machine().peer_access);
  return fake;
}

/// Gives back to the cards' ledgers what a call has freed.
template <typename Call>
int counting_freed(Call call) {
  std::array<std::size_t, cards_max> before{};
  const auto each_card = [&](auto action) {
    for (int card = 0; card < machine().cards; ++card) {
      action(card, before[static_cast<std::size_t>(card)]);
    }
  };
  const auto& fake = fake_driver();
  each_card([&](int card, std::size_t& held) { held = fake.bytes_held(card); });
  const int result = call();
  each_card([&](int card, std::size_t held) {
    ledger(card).give_back(Holder::handle, held - fake.bytes_held(card));
  });
  return result;
}

/// CUDA's virtual-memory calls for the emulated cards: those of the FakeDriver that lives, which
/// keeps the driver's rules and can refuse the n-th call, or a card's ledger does; what is mapped
/// is a card's memory to kernels and copies. Unlike allocations it is open to the host.
inline hyb::kernels::DriverTable driver_table() {
  using hyb::kernels::testing::FakeDriver;
  namespace driver = hyb::kernels::driver;
  static const hyb::kernels::DriverTable inner = FakeDriver::table();
  hyb::kernels::DriverTable table = inner;
  table.mem_get_allocation_granularity = [](auto... values) {
    const std::lock_guard lock(machine().mutex);
    fake_driver();
    return inner.mem_get_allocation_granularity(values...);
  };
  table.mem_create = [](driver::Handle* handle, std::size_t bytes,
                        const driver::AllocationProperties* properties, auto... more) {
    const std::lock_guard lock(machine().mutex);
    const int card = properties->location.id;
    if (!machine().has_card(card)) return driver::invalid_device;
    if (!ledger(card).take(Holder::handle, bytes)) return FakeDriver::out_of_memory;
    fake_driver();
    const int result = inner.mem_create(handle, bytes, properties, more...);
    if (result != driver::success) ledger(card).give_back(Holder::handle, bytes);
    return result;
  };
  table.mem_release = [](driver::Handle handle) {
    const std::lock_guard lock(machine().mutex);
    return counting_freed([&] { return inner.mem_release(handle); });
  };
  table.mem_map = [](driver::Address at, std::size_t bytes, std::size_t offset,
                     driver::Handle handle, auto... more) {
    const std::lock_guard lock(machine().mutex);  // another thread's kernels see the mappings
    const int result = inner.mem_map(at, bytes, offset, handle, more...);
    if (result == driver::success) {
      const int card = fake_driver().device_of(handle);
      device_memory().add_mapping(card, reinterpret_cast<void*>(at), bytes);
    }
    return result;
  };
  table.mem_set_access = [](driver::Address at, std::size_t bytes,
                            const driver::AccessDescription* access, std::size_t count) {
    const std::lock_guard lock(machine().mutex);
    fake_driver();
    const int result = inner.mem_set_access(at, bytes, access, count);
    if (result == driver::success) {
      CardSet cards = no_card;
      for (std::size_t i = 0; i < count; ++i) cards |= only_card(access[i].location.id);
      device_memory().allow(cards, reinterpret_cast<void*>(at), bytes);
    }
    return result;
  };
  table.mem_unmap = [](driver::Address at, std::size_t bytes) {
    const std::lock_guard lock(machine().mutex);
    const int result = counting_freed([&] { return inner.mem_unmap(at, bytes); });
    if (result == driver::success) {
      device_memory().remove_mappings(reinterpret_cast<void*>(at), bytes);
    }
    return result;
  };
  table.memset_d8 = [](auto... values) {
    return is_recording_only() ? driver::success : inner.memset_d8(values...);
  };
  return table;
}

}  // namespace emulator
