#pragma once

#include <cstddef>

namespace emulator {

/// Memory for one fibre, with a page below it that may not be touched. Pages are taken as they are
/// used.
class Stack {
 public:
  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack();

  void allocate();  ///< the first time; later calls do nothing
  std::byte* bottom() const { return bottom_; }
  std::byte* top() const { return top_; }

 private:
  std::byte* bottom_ = nullptr;
  std::byte* top_ = nullptr;
};

/// An execution that can be left in the middle and resumed there. It stays on the thread of the
/// operating system that made it. Resuming costs some 10 ns; address sanitizers are notified.
class Fibre {
 public:
  /// The next resume() calls entry(argument). Whatever ran here before is forgotten: no destructor
  /// of its frames runs. `entry` must not return; it ends with leave_for_good().
  void start(void (*entry)(void*), void* argument);

  /// From outside: runs until the fibre leaves.
  void resume();

  /// From inside: back to the resumer.
  void leave();
  [[noreturn]] void leave_for_good();  ///< from the outermost frames, or with frames abandoned

  /// The guard page and the stack of this fibre, to distinguish an overflow from other bad
  /// accesses.
  bool is_guard_page(const void* address) const;
  bool is_stack(const void* address) const {
    return address >= stack_.bottom() && address < stack_.top();
  }

  /// From inside: no frame on the stack will be returned to. A new one may start here.
  std::byte* discard_frames();

 private:
  friend void run_entry(Fibre& fibre);

  Stack stack_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* inside_ = nullptr;   // stack pointer of the fibre while it is left
  void* outside_ = nullptr;  // stack pointer of the resumer while it runs
  void* sanitizer_inside_ = nullptr;
  void* sanitizer_outside_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
  bool left_in_the_middle_ = false;
};

}  // namespace emulator
