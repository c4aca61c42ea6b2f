#include "tests/cuda_emulator/device/accesses.h"

#include <cxxabi.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/fault.h"
#include "tests/cuda_emulator/device/grid.h"

extern "C" const char __executable_start;

namespace emulator {
namespace {

std::uint32_t place_number(const void* place) {
  return static_cast<std::uint32_t>(static_cast<const char*>(place) - &__executable_start);
}
const void* place_of_number(std::uint32_t number) { return &__executable_start + number; }

std::uint16_t number_of(const DeviceThread& thread) {
  return static_cast<std::uint16_t>(thread.warp->number * lanes_per_warp + thread.lane);
}

const char* name_of(Access access) {
  switch (access) {
    case Access::read:
      return "a read";
    case Access::write:
      return "a write";
    case Access::atomic:
      return "an atomic";
  }
  return "";
}

/// Ends the launch from a call that the compiler takes for one that throws nothing: the frames of
/// the fibre are abandoned.
[[noreturn]] void abandon(const std::string& text, const void* place) {
  fault_log().report(text + " at " + place_of_code(place) + describe_current_thread());
  current_thread->waiting = Waiting::gone;
  current_thread->fibre.leave_for_good();
}

/// Which kernel wrote 16 bytes of global memory, or read them by load16_once: the last one that did
/// so, as long as no other bytes took the place in the table.
class LastKernels {
 public:
  void set(const void* at, std::uint32_t grid) {
    const std::uint64_t granule = reinterpret_cast<std::uintptr_t>(at) / 16;
    entry(granule).store(granule << 20 | (grid & 0xfffffU), std::memory_order_relaxed);
  }
  bool is_of(const void* at, std::uint32_t grid) {
    const std::uint64_t granule = reinterpret_cast<std::uintptr_t>(at) / 16;
    return entry(granule).load(std::memory_order_relaxed) == (granule << 20 | (grid & 0xfffffU));
  }

 private:
  static constexpr std::size_t entries = std::size_t{1} << 20;
  std::atomic<std::uint64_t>& entry(std::uint64_t granule) { return table_[granule % entries]; }
  std::vector<std::atomic<std::uint64_t>> table_ = std::vector<std::atomic<std::uint64_t>>(entries);
};

LastKernels& last_writers() {
  static LastKernels the_table;
  return the_table;
}
LastKernels& last_readers() {
  static LastKernels the_table;
  return the_table;
}

/// Would `grid`, or one before it that may still run, find itself in the table?
bool is_of_chain(LastKernels& table, const void* at, const Grid& grid) {
  for (const Grid* each = &grid; each != nullptr; each = each->previous) {
    if ((each == &grid || !each->has_ended()) && table.is_of(at, each->number)) return true;
  }
  return false;
}

}  // namespace

void HeldStores::add(void* at, std::size_t size, std::uint16_t thread, std::uint32_t tick) {
  for (std::size_t done = 0; done < size; done += 16) {
    Store store{.at = static_cast<std::byte*>(at) + done,
                .size = static_cast<std::uint8_t>(std::min<std::size_t>(16, size - done)),
                .thread = thread,
                .tick = tick,
                .other = {}};
    std::memcpy(store.other.data(), store.at, store.size);
    stores_.push_back(store);
  }
}

void HeldStores::show() {
  if (!is_hidden_) return;
  is_hidden_ = false;
  for (Store& store : stores_) {
    std::swap_ranges(store.at, store.at + store.size, store.other.begin());
  }
}

void HeldStores::hide() {
  if (is_hidden_) return;
  is_hidden_ = true;
  for (auto store = stores_.rbegin(); store != stores_.rend(); ++store) {
    std::swap_ranges(store->at, store->at + store->size, store->other.begin());
  }
}

BlockAccesses::BlockAccesses() {
  void* const mapped = mmap(nullptr, SharedMemory::room * sizeof(Shadow), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  shadows_ = static_cast<Shadow*>(mapped);
}

BlockAccesses::~BlockAccesses() { munmap(shadows_, SharedMemory::room * sizeof(Shadow)); }

void BlockAccesses::start() {
  sync_block();
  for (auto& arrivals : arrivals_) arrivals.clear();
  instructions_.clear();
  stores = {};
}

void BlockAccesses::end(const void* kernel) {
  for (const auto& [key, instruction] : instructions_) {
    for (const Turn& turn : instruction.open) count_turn(turn, instruction.size);
  }
  if (counts_banks()) add_bank_counts(kernel, std::exchange(banks_, {}));
}

void BlockAccesses::sync_block() {
  block_synced_ = ++tick_;
  warp_synced_.fill(0);
  for (auto& known : known_) known.reset();
  lanes_synced_.clear();
}

void BlockAccesses::sync_warp(unsigned warp, std::uint32_t mask, bool is_whole) {
  ++tick_;
  if (is_whole) {
    warp_synced_[warp] = tick_;
    return;
  }
  std::array<std::uint32_t, 32> all{};
  const auto each_lane = [&](auto action) {
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(left));
      action(lane, lanes_synced_[static_cast<std::uint16_t>(warp * lanes_per_warp + lane)]);
    }
  };
  each_lane([&](unsigned, const auto& known) {
    for (std::size_t i = 0; i < 32; ++i) all[i] = std::max(all[i], known[i]);
  });
  each_lane([&](unsigned lane, const auto&) { all[lane] = tick_; });
  each_lane([&](unsigned, auto& known) { known = all; });
}

void BlockAccesses::arrive(int barrier, std::uint16_t thread) {
  arrivals_[static_cast<std::size_t>(barrier)].emplace_back(thread, ++tick_);
}

void BlockAccesses::open_barrier(int barrier, std::span<const std::uint16_t> waiting) {
  ++tick_;
  Ticks all{};
  auto& arrivals = arrivals_[static_cast<std::size_t>(barrier)];
  for (const auto& [thread, tick] : arrivals) {
    if (const auto& known = known_[thread / lanes_per_warp]; known != nullptr) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], (*known)[i]);
    }
  }
  for (const auto& [thread, tick] : arrivals) all[thread] = std::max(all[thread], tick);
  arrivals.clear();
  for (const std::uint16_t thread : waiting) {
    known_[thread / lanes_per_warp] = std::make_unique<Ticks>(all);
  }
}

bool BlockAccesses::is_ordered(const Stamp& before, std::uint16_t thread) const {
  if (before.thread == thread || before.tick < block_synced_) return true;
  const unsigned warp = thread / lanes_per_warp;
  if (before.thread / lanes_per_warp == warp) {
    if (before.tick < warp_synced_[warp]) return true;
    const auto known = lanes_synced_.find(thread);
    if (known != lanes_synced_.end() &&
        before.tick < known->second[before.thread % lanes_per_warp]) {
      return true;
    }
  }
  return known_[warp] != nullptr && before.tick < (*known_[warp])[before.thread];
}

void BlockAccesses::fence(const DeviceThread& thread) {
  stores.publish_if([&](const HeldStores::Store& store) {
    return is_ordered({.tick = store.tick, .thread = store.thread}, number_of(thread));
  });
}

void BlockAccesses::check_race(std::size_t offset, std::size_t size, Access access,
                               const Stamp& now) {
  const auto check_against = [&](const Stamp& before, const char* what) {
    if (before.tick == 0 || is_ordered(before, now.thread)) return;
    if (before.is_atomic && now.is_atomic) return;
    abandon(std::string("a race in shared memory: ") + name_of(access) + " after " + what +
                " of thread " + std::to_string(before.thread) + " at " +
                place_of_code(place_of_number(before.place)) + " with no barrier between,",
            place_of_number(now.place));
  };
  for (std::size_t i = offset; i < offset + size; ++i) {
    Shadow& shadow = shadows_[i];
    check_against(shadow.write, "a write");
    if (access != Access::read) {
      check_against(shadow.read, "a read");
      check_against(shadow.other_read, "a read");
      shadow.write = now;
    } else {
      if (shadow.read.thread != now.thread) shadow.other_read = shadow.read;
      shadow.read = now;
    }
  }
}

void BlockAccesses::check(const DeviceThread& thread, const void* at, std::size_t size,
                          Access access, const void* place) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(at));
  if (thread.fibre.is_stack(at)) return;
  const bool is_number = std::has_single_bit(size) && size <= 16;
  const auto check_alignment = [&] {
    if (!is_number || reinterpret_cast<std::uintptr_t>(at) % size == 0) return;
    abandon(std::string(name_of(access)) + " of " + std::to_string(size) +
                " bytes: misaligned, the address is no multiple of that,",
            place);
  };
  const Stamp now{.tick = tick_,
                  .place = place_number(place),
                  .thread = number_of(thread),
                  .is_atomic = access == Access::atomic};
  const SharedMemory& shared = thread.block->shared;
  if (const std::size_t offset = shared.offset_of(at); offset < SharedMemory::room) {
    check_alignment();
    if (offset + size > SharedMemory::room) return;  // into the page that may not be touched
    check_race(offset, size, access, now);
    if (counts_banks()) count_banks(thread, offset, size, now.place);
    return;
  }
  // What is neither is the program's own: tables, arguments, the emulator.
  if (!device_memory().is_near(at)) return;
  check_alignment();
  const Grid& grid = *thread.block->grid;
  const std::string obstacle = device_memory().obstacle(grid.card, at, size);
  if (!obstacle.empty()) {
    abandon(
        std::string(name_of(access)) + " of " + std::to_string(size) + " bytes " + obstacle + ",",
        place);
  }
  if (access == Access::read) return;
  for (std::size_t i = 0; i < size; i += 16) {
    if (is_of_chain(last_readers(), bytes + i, grid)) {
      abandon(
          std::string(name_of(access)) + " of bytes that a kernel in flight reads by load16_once,",
          place);
    }
    last_writers().set(bytes + i, grid.number);
  }
  if (access == Access::write) stores.add(bytes, size, now.thread, now.tick);
}

void BlockAccesses::check_copied(const DeviceThread& thread, void* to, std::size_t size,
                                 const void* place) {
  check_race(thread.block->shared.offset_of(to), size, Access::write,
             {.tick = tick_, .place = place_number(place), .thread = number_of(thread)});
}

void BlockAccesses::check_read_only(const DeviceThread& thread, const void* at, std::size_t size,
                                    const void* place) {
  const Grid& grid = *thread.block->grid;
  const auto* const bytes = static_cast<const std::byte*>(at);
  for (std::size_t i = 0; i < size; i += 16) {
    if (is_of_chain(last_writers(), bytes + i, grid)) {
      abandon("load16_once of bytes that a kernel in flight writes,", place);
    }
    last_readers().set(bytes + i, grid.number);
  }
}

void BlockAccesses::count_banks(const DeviceThread& thread, std::size_t offset, std::size_t size,
                                std::uint32_t place) {
  Instruction& instruction = instructions_[std::uint64_t{thread.warp->number} << 32 | place];
  instruction.size = size;
  const std::uint32_t number = instruction.turns[thread.lane]++ - instruction.first;
  if (number >= instruction.open.size()) instruction.open.resize(number + 1);
  Turn& turn = instruction.open[number];
  turn.lanes |= 1U << thread.lane;
  turn.offsets[thread.lane] = static_cast<std::uint32_t>(offset);
  while (!instruction.open.empty() && instruction.open.front().lanes == thread.warp->live) {
    count_turn(instruction.open.front(), size);
    instruction.open.erase(instruction.open.begin());
    ++instruction.first;
  }
}

/// The lanes that ask for 128 bytes together take as many cycles as the busiest bank has different
/// words.
void BlockAccesses::count_turn(const Turn& turn, std::size_t size) {
  const std::size_t lanes = 128 / std::clamp<std::size_t>(size, 4, 16);
  for (std::size_t first = 0; first < lanes_per_warp; first += lanes) {
    std::array<std::vector<std::uint32_t>, 32> words;
    for (std::size_t lane = first; lane < first + lanes; ++lane) {
      if ((turn.lanes >> lane & 1U) == 0) continue;
      for (std::size_t byte = 0; byte < std::max<std::size_t>(size, 4); byte += 4) {
        const auto word = static_cast<std::uint32_t>(turn.offsets[lane] + byte) / 4;
        auto& bank = words[word % 32];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      }
    }
    std::size_t cycles = 0;
    for (const auto& bank : words) cycles = std::max(cycles, bank.size());
    banks_.accesses += cycles > 0 ? 1 : 0;
    banks_.cycles += static_cast<std::int64_t>(cycles);
  }
}

void note_access(const void* at, std::size_t size, Access access, const void* place) {
  if (!is_instrumented) return;
  if (place == nullptr) place = __builtin_return_address(0);
  current_thread->block->accesses->check(*current_thread, at, size, access, place);
}

void note_read_only(const void* at, std::size_t size) {
  if (!is_instrumented) return;
  const DeviceThread& thread = *current_thread;
  thread.block->accesses->check_read_only(thread, at, size, __builtin_return_address(0));
}

void load_bytes(void* to, const void* from, std::size_t size) {
  note_access(from, size, Access::read, __builtin_return_address(0));
  std::memcpy(to, from, size);
}

void store_bytes(void* to, const void* from, std::size_t size) {
  note_access(to, size, Access::write, __builtin_return_address(0));
  std::memcpy(to, from, size);
}

namespace {

/// The program's functions by where they begin, of its own table of symbols.
std::map<std::uintptr_t, std::string> read_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const auto read = [&]<typename T>(T& to, std::size_t at) {
    std::memcpy(&to, all.data() + at, sizeof(T));
  };
  Elf64_Ehdr header;
  read(header, 0);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    read(sections[i], header.e_shoff + i * sizeof(Elf64_Shdr));
  }
  std::map<std::uintptr_t, std::string> functions;
  const auto base = header.e_type == ET_DYN ? reinterpret_cast<std::uintptr_t>(&__executable_start)
                                            : std::uintptr_t{0};
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (std::size_t i = 0; i < section.sh_size; i += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      read(symbol, section.sh_offset + i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      functions[base + symbol.st_value] =
          all.c_str() + sections[section.sh_link].sh_offset + symbol.st_name;
    }
  }
  return functions;
}

/// "gemv_kernel<1, false, bf16>" of the name as the compiler has it, like scripts/card/ptxas.py.
std::string short_name(const std::string& symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  for (const std::string part :
       {"hyb::kernels::", "cuda::", "(anonymous namespace)::", "(bool)", "(int)", "void "}) {
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part)) {
      name.erase(at, part.size());
    }
  }
  for (auto at = name.find("> >"); at != std::string::npos; at = name.find("> >")) {
    name.erase(at + 1, 1);
  }
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace

const std::string& kernel_name(const void* kernel) {
  static std::mutex mutex;
  static std::map<const void*, std::string> names;
  static const std::map<std::uintptr_t, std::string> symbols = read_symbols();
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = names.try_emplace(kernel);
  if (is_new) {
    const auto found = symbols.find(reinterpret_cast<std::uintptr_t>(kernel));
    at->second = found == symbols.end() ? "unknown" : short_name(found->second);
  }
  return at->second;
}

std::string place_of_code(const void* place) {
  char command[128];  // the address before the one that a call returns to
  std::snprintf(command, sizeof(command), "addr2line -e /proc/%d/exe 0x%x 2>/dev/null",
                static_cast<int>(getpid()), place_number(place) - 1);
  std::string text;
  if (FILE* const output = popen(command, "r")) {
    char line[512] = "";
    if (std::fgets(line, sizeof(line), output) != nullptr) text = line;
    pclose(output);
  }
  text = text.substr(0, text.find_first_of("\n "));
  if (!text.empty() && !text.starts_with("?")) return text;
  return "code address " + std::to_string(place_number(place));
}

namespace {

/// By kernel. With HYB_EMULATED_BANKS in the environment, printed when the program ends.
class BankTable {
 public:
  BankTable() : prints_(std::getenv("HYB_EMULATED_BANKS") != nullptr) {}
  ~BankTable() {
    for (const auto& [kernel, counts] : counts_) {
      if (!prints_ || counts.accesses == 0) continue;
      std::printf("%-60s %12lld accesses of 128 bytes %12lld cycles %6.2f each\n",
                  kernel_name(kernel).c_str(), static_cast<long long>(counts.accesses),
                  static_cast<long long>(counts.cycles),
                  static_cast<double>(counts.cycles) / static_cast<double>(counts.accesses));
    }
  }

  void add(const void* kernel, const BankCounts& counts) {
    const std::lock_guard lock(mutex_);
    counts_[kernel].accesses += counts.accesses;
    counts_[kernel].cycles += counts.cycles;
  }
  BankCounts take(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (auto& [kernel, counts] : counts_) {
      if (kernel_name(kernel) == name) return std::exchange(counts, {});
    }
    return {};
  }
  bool prints() const { return prints_; }

  std::atomic<bool> is_on{false};

 private:
  const bool prints_;
  std::mutex mutex_;
  std::map<const void*, BankCounts> counts_;
};

BankTable& bank_table() {
  static BankTable the_table;
  return the_table;
}

}  // namespace

bool counts_banks() { return bank_table().prints() || bank_table().is_on; }
void count_banks(bool is_on) { bank_table().is_on = is_on; }
void add_bank_counts(const void* kernel, const BankCounts& counts) {
  bank_table().add(kernel, counts);
}
BankCounts take_bank_counts(const std::string& kernel) { return bank_table().take(kernel); }

}  // namespace emulator
