#include "kernels/arena/driver_table.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::kernels {
namespace {

template <typename Function>
void find(void* library, const char* library_name, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorKind::usage,
                fmt::format("cuda: {} has no {}; install a driver of CUDA 11 or later, or use "
                            "--device cpu",
                            library_name, name));
  }
}

}  // namespace

static_assert(sizeof(driver::AllocationProperties) == 32, "as in cuda.h");
static_assert(sizeof(driver::AccessDescription) == 12, "as in cuda.h");

DriverTable load_driver(const char* library_name) {
  void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorKind::usage,
                fmt::format("cuda: no driver on this machine ({}); use --device cpu",
                            why == nullptr ? library_name : why));
  }
  const auto bind = [&](const char* name, auto& function) {
    find(library, library_name, name, function);
  };
  DriverTable table;
  bind("cuGetErrorName", table.get_error_name);
  bind("cuMemGetAllocationGranularity", table.mem_get_allocation_granularity);
  bind("cuMemAddressReserve", table.mem_address_reserve);
  bind("cuMemAddressFree", table.mem_address_free);
  bind("cuMemCreate", table.mem_create);
  bind("cuMemRelease", table.mem_release);
  bind("cuMemMap", table.mem_map);
  bind("cuMemUnmap", table.mem_unmap);
  bind("cuMemSetAccess", table.mem_set_access);
  bind("cuMemExportToShareableHandle", table.mem_export_to_shareable_handle);
  bind("cuMemsetD8_v2", table.memset_d8);
  return table;
}

}  // namespace hyb::kernels
