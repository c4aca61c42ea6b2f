#pragma once

#include <unistd.h>

#include <utility>

namespace hyb {

/// Owns an open file descriptor, or none (any negative number).
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  void close() {
    if (number_ >= 0) ::close(number_);
  }

  int number_ = -1;
};

}  // namespace hyb
