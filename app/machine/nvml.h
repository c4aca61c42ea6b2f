#pragma once

namespace hyb::app {

/// NVIDIA's management library, open as long as this lives. Functions are declared where they are
/// called, as its manual has them.
class NvmlLibrary {
 public:
  NvmlLibrary();
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  static constexpr int success = 0;  ///< NVML_SUCCESS

  /// False: this machine has none, or it does not start; then nothing is to be called.
  bool is_open() const { return is_open_; }

  /// Sets a pointer to a function of the library; null and false: it has none of that name.
  template <typename Function>
  bool find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
    return function != nullptr;
  }

 private:
  void* symbol(const char* name) const;

  void* library_;
  bool is_open_ = false;
};

}  // namespace hyb::app
