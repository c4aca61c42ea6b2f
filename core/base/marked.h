#pragma once

namespace hyb {

/// Sets a flag for as long as it lives.
class Marked {
 public:
  explicit Marked(bool& flag) : flag_(flag) { flag_ = true; }
  ~Marked() { flag_ = false; }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  bool& flag_;
};

}  // namespace hyb
