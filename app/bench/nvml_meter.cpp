#include "app/bench/nvml_meter.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>

namespace hyb::app {
namespace {

// The part of NVML's C interface that is used, as its manual has it.
using Device = void*;
constexpr int success = 0;
constexpr unsigned processor_clock = 1, memory_clock = 2;
constexpr unsigned on_the_card = 0;  ///< the temperature sensor

struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
/// Idle (bit 0) and clocks that an application asked for (bit 1) hold nobody down.
constexpr std::array<ThrottleReason, 6> throttle_reasons = {{{0x04, "power cap"},
                                                             {0x08, "hardware slowdown"},
                                                             {0x20, "software thermal slowdown"},
                                                             {0x40, "hardware thermal slowdown"},
                                                             {0x80, "power brake"},
                                                             {0x10, "sync boost"}}};

class NvmlMeter final : public CardMeter {
 public:
  explicit NvmlMeter(void* library) : library_(library) {
    if (!find(init_, "nvmlInit_v2") || init_() != success) return;
    find(shutdown_, "nvmlShutdown");
    int (*handle)(unsigned, Device*) = nullptr;
    is_open_ = find(handle, "nvmlDeviceGetHandleByIndex_v2") && handle(0, &device_) == success;
    find(clock_, "nvmlDeviceGetClockInfo");
    find(power_, "nvmlDeviceGetPowerUsage");
    find(energy_, "nvmlDeviceGetTotalEnergyConsumption");
    find(temperature_, "nvmlDeviceGetTemperature");
    find(throttle_, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  ~NvmlMeter() override {
    if (shutdown_ != nullptr) shutdown_();
    dlclose(library_);
  }
  NvmlMeter(const NvmlMeter&) = delete;
  NvmlMeter& operator=(const NvmlMeter&) = delete;

  bool is_open() const { return is_open_; }

  CardReading read() override {
    CardReading reading;
    reading.processor_mhz = clock(processor_clock);
    reading.memory_mhz = clock(memory_clock);
    unsigned milliwatts = 0, celsius = 0;
    unsigned long long millijoules = 0, reasons = 0;
    if (power_ != nullptr && power_(device_, &milliwatts) == success) {
      reading.watts = milliwatts / 1e3;
    }
    if (energy_ != nullptr && energy_(device_, &millijoules) == success) {
      reading.joules = static_cast<double>(millijoules) / 1e3;
    }
    if (temperature_ != nullptr && temperature_(device_, on_the_card, &celsius) == success) {
      reading.celsius = celsius;
    }
    if (throttle_ == nullptr || throttle_(device_, &reasons) != success) return reading;
    for (const ThrottleReason& reason : throttle_reasons) {
      if ((reasons & reason.bit) == 0) continue;
      reading.throttling += (reading.throttling.empty() ? "" : ", ") + std::string(reason.name);
    }
    return reading;
  }

  std::string driver() const override {
    int (*version)(char*, unsigned) = nullptr;
    std::array<char, 96> text{};
    const auto length = static_cast<unsigned>(text.size());
    const bool is_known =
        find(version, "nvmlSystemGetDriverVersion") && version(text.data(), length) == success;
    return is_known ? text.data() : "";
  }

 private:
  template <typename Function>
  bool find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  std::optional<double> clock(unsigned which) const {
    unsigned mhz = 0;
    if (clock_ == nullptr || clock_(device_, which, &mhz) != success) return std::nullopt;
    return mhz;
  }

  void* library_;
  Device device_ = nullptr;
  bool is_open_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*clock_)(Device, unsigned, unsigned*) = nullptr;
  int (*power_)(Device, unsigned*) = nullptr;
  int (*energy_)(Device, unsigned long long*) = nullptr;
  int (*temperature_)(Device, unsigned, unsigned*) = nullptr;
  int (*throttle_)(Device, unsigned long long*) = nullptr;
};

}  // namespace

std::unique_ptr<CardMeter> open_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto meter = std::make_unique<NvmlMeter>(library);
  if (!meter->is_open()) return nullptr;
  return meter;
}

}  // namespace hyb::app
