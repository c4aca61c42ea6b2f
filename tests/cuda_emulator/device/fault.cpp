#include "tests/cuda_emulator/device/fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <new>

#include "tests/cuda_emulator/device/device_memory.h"
#include "tests/cuda_emulator/device/grid.h"

namespace emulator {
namespace {

constexpr std::size_t signal_stack_bytes = 64 << 10;

std::string to_text(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

/// What the memory is that a kernel touched and may not.
std::string name_of(const void* address) {
  const DeviceThread& thread = *current_thread;
  if (thread.fibre.is_guard_page(address)) return "its stack has overflowed";
  if (thread.block->shared.is_guard_page(address)) return "an access outside of shared memory";
  const int owner = device_memory().card_of(address), card = thread.block->grid->card;
  if (owner >= 0 && owner != card) {
    return "an access to memory " + device_memory().obstacle(card, address, 1);
  }
  if (device_memory().is_near(address)) return "an access outside of an allocation of the device";
  return "an access to memory that is not the device's";
}

thread_local const void* bad_address = nullptr;

/// Runs where a bad access was, from which nothing can be thrown: the frames above are abandoned.
[[noreturn]] void report_bad_access() {
  fault_log().report(name_of(bad_address) + describe_current_thread());
  current_thread->waiting = Waiting::gone;
  current_thread->fibre.leave_for_good();
}

struct sigaction earlier_segv, earlier_bus;

void on_signal(int number, siginfo_t* info, void* machine) {
  if (current_thread == nullptr) {
    static constexpr char text[] =
        "emulator: host code touched memory that it may not; is it the device's?\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, sizeof(text) - 1);
    sigaction(number, number == SIGBUS ? &earlier_bus : &earlier_segv, nullptr);
    return;  // the same access again, for the previous handler
  }
  bad_address = info->si_addr;
  // The handler may not leave to another stack: it returns into report_bad_access() on the stack of
  // the fibre, as if that had been called there.
  auto* const registers = static_cast<ucontext_t*>(machine)->uc_mcontext.gregs;
  auto top = static_cast<std::uintptr_t>(registers[REG_RSP]);
  if (current_thread->fibre.is_guard_page(bad_address)) {
    top = reinterpret_cast<std::uintptr_t>(current_thread->fibre.discard_frames());
  }
  registers[REG_RSP] = static_cast<greg_t>(((top - 1024) & ~std::uintptr_t{63}) - 8);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&report_bad_access);
}

}  // namespace

void FaultLog::report(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (text_.empty()) text_ = text;
  has_fault_.store(true, std::memory_order_release);
}

std::string FaultLog::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

void FaultLog::clear() {
  const std::lock_guard lock(mutex_);
  text_.clear();
  has_fault_.store(false, std::memory_order_release);
}

std::string to_text(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

void fault(const std::string& text, std::source_location where) {
  throw Fault{text + " at " + to_text(where)};
}

std::string describe_current_thread() {
  const DeviceThread& thread = *current_thread;
  return ", in block " + to_text(thread.block->index) + " thread " + to_text(thread.index) +
         " of " + kernel_name(thread.block->grid->kernel);
}

SignalGuard::SignalGuard() {
  struct sigaction wanted {};
  wanted.sa_sigaction = on_signal;
  wanted.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &wanted, &earlier_segv);
  sigaction(SIGBUS, &wanted, &earlier_bus);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGSEGV, &earlier_segv, nullptr);
  sigaction(SIGBUS, &earlier_bus, nullptr);
}

SignalStack::SignalStack() {
  bytes_ =
      mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes_ == MAP_FAILED) throw std::bad_alloc();
  stack_t wanted{};
  wanted.ss_sp = bytes_;
  wanted.ss_size = signal_stack_bytes;
  sigaltstack(&wanted, &earlier_);
}

SignalStack::~SignalStack() {
  sigaltstack(&earlier_, nullptr);
  munmap(bytes_, signal_stack_bytes);
}

}  // namespace emulator
