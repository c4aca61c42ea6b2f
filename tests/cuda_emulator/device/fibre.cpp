#include "tests/cuda_emulator/device/fibre.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#error "the emulator switches stacks on x86-64 only"
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves what a function must keep (the ABI's callee-saved registers) on the stack it leaves, and
// takes the same from the stack it enters. The rounding modes are the worker's and the same in all
// fibres: to load them takes longer than all the rest.
extern "C" void emulator_switch_stacks(void** leave, void* enter);
asm(R"(
.text
.globl emulator_switch_stacks
.type emulator_switch_stacks,@function
emulator_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch_stacks,.-emulator_switch_stacks
)");

namespace emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = 256 << 10;  // red zones make frames several times larger
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif
constexpr std::size_t guard_bytes = 64 << 10;  // a frame could step over less
constexpr std::size_t outermost_bytes = 4096;  // more than the frames below a kernel's own take

/// The sanitizer keeps a shadow of every stack; these say which one is in use now.
void announce_switch([[maybe_unused]] void** keep, [[maybe_unused]] const void* bottom,
                     [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(keep, bottom, bytes);
#endif
}
void finish_switch([[maybe_unused]] void* kept, [[maybe_unused]] const void** bottom,
                   [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept, bottom, bytes);
#endif
}
void forget_frames([[maybe_unused]] std::byte* from, [[maybe_unused]] std::byte* to) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(from, static_cast<std::size_t>(to - from));
#endif
}

/// Stacks that begin at the same offset of a page all use the same few lines of the first-level
/// data memory: they begin at different ones.
std::size_t spread() {
  static std::atomic<unsigned> made{0};
  return (made.fetch_add(1, std::memory_order_relaxed) % 32) * 192;
}

}  // namespace

void Stack::allocate() {
  if (bottom_ != nullptr) return;
  void* const mapped = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapped, guard_bytes, PROT_NONE);
  bottom_ = static_cast<std::byte*>(mapped) + guard_bytes;
  top_ = bottom_ + stack_bytes - spread();
}

Stack::~Stack() {
  if (bottom_ == nullptr) return;
  forget_frames(bottom_, top_);
  munmap(bottom_ - guard_bytes, guard_bytes + stack_bytes);
}

void run_entry(Fibre& fibre) {
  finish_switch(nullptr, &fibre.outside_bottom_, &fibre.outside_bytes_);
  fibre.entry_(fibre.argument_);
}

}  // namespace emulator

extern "C" void emulator_enter(emulator::Fibre* fibre) {
  emulator::run_entry(*fibre);
  __builtin_trap();
}

// The first switch into a fibre "returns" here, with the fibre in rbx.
extern "C" void emulator_first_frame();
asm(R"(
.text
.globl emulator_first_frame
.type emulator_first_frame,@function
emulator_first_frame:
  movq %rbx, %rdi
  xorl %ebp, %ebp
  call emulator_enter
  hlt
.size emulator_first_frame,.-emulator_first_frame
)");

namespace emulator {

void Fibre::start(void (*entry)(void*), void* argument) {
  stack_.allocate();
  forget_frames(left_in_the_middle_ ? stack_.bottom() : stack_.top() - outermost_bytes,
                stack_.top());
  left_in_the_middle_ = true;
  entry_ = entry;
  argument_ = argument;
  sanitizer_inside_ = nullptr;
  auto* const words = reinterpret_cast<std::uint64_t*>(stack_.top()) - 8;
  for (int i = 1; i < 7; ++i) words[i] = 0;          // r15 r14 r13 r12 rbx rbp
  words[5] = reinterpret_cast<std::uint64_t>(this);  // rbx
  words[7] = reinterpret_cast<std::uint64_t>(&emulator_first_frame);
  inside_ = &words[1];
}

void Fibre::resume() {
  announce_switch(&sanitizer_outside_, stack_.bottom(), stack_bytes);
  emulator_switch_stacks(&outside_, inside_);
  finish_switch(sanitizer_outside_, nullptr, nullptr);
}

void Fibre::leave() {
  announce_switch(&sanitizer_inside_, outside_bottom_, outside_bytes_);
  emulator_switch_stacks(&inside_, outside_);
  finish_switch(sanitizer_inside_, &outside_bottom_, &outside_bytes_);
}

void Fibre::leave_for_good() {
  std::byte* const here = static_cast<std::byte*>(__builtin_frame_address(0));
  left_in_the_middle_ = here < stack_.top() - outermost_bytes / 2;
  announce_switch(nullptr, outside_bottom_, outside_bytes_);
  emulator_switch_stacks(&inside_, outside_);
  __builtin_trap();
}

bool Fibre::is_guard_page(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= stack_.bottom() - guard_bytes && at < stack_.bottom();
}

std::byte* Fibre::discard_frames() {
  forget_frames(stack_.bottom(), stack_.top());
  return stack_.top();
}

}  // namespace emulator
