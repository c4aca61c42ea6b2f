#include "app/machine/nvml.h"

#include <dlfcn.h>

namespace hyb::app {

NvmlLibrary::NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  int (*init)() = nullptr;
  is_open_ = find(init, "nvmlInit_v2") && init() == success;
}

NvmlLibrary::~NvmlLibrary() {
  int (*shutdown)() = nullptr;
  if (is_open_ && find(shutdown, "nvmlShutdown")) shutdown();
  if (library_ != nullptr) dlclose(library_);
}

void* NvmlLibrary::symbol(const char* name) const {
  return library_ == nullptr ? nullptr : dlsym(library_, name);
}

}  // namespace hyb::app
