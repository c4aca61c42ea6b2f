#include "app/bench/card_watch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <nlohmann/json.hpp>

namespace card_watch_test {

using namespace hyb;
using namespace hyb::app;
using doctest::Approx;

namespace {

/// Every reading: 10 MHz and 1 W less, 5 J more.
class FakeMeter final : public CardMeter {
 public:
  CardReading read() override {
    const int n = readings++;
    return {.processor_mhz = 2000 - 10 * n,
            .memory_mhz = 1500,
            .watts = 400 - n,
            .joules = 1000 + 5 * n,
            .celsius = 50 + n,
            .throttling = n == 1 ? "power cap" : ""};
  }
  std::atomic<int> readings = 0;
};

class SilentMeter final : public CardMeter {
 public:
  CardReading read() override { return {}; }
};

}  // namespace

TEST_SUITE("app/bench/card_watch") {
  TEST_CASE("two readings at least: when it begins and when it ends") {
    FakeMeter meter;
    CardWatch watch(&meter, std::chrono::hours(1));
    watch.begin();
    const CardFigures figures = watch.end();
    CHECK(figures.readings == 2);
    CHECK(*figures.processor_mhz_mean == Approx(1995));
    CHECK(*figures.processor_mhz_min == Approx(1990));
    CHECK(*figures.watts_mean == Approx(399.5));
    CHECK(*figures.joules == Approx(5));
    CHECK(*figures.celsius_max == Approx(51));
    CHECK(figures.throttling == "power cap");
    const Json json = card_json(figures, 10);
    CHECK(json["joules_per_token"] == 0.5);
    CHECK(json["gpu_throttling"] == "power cap");
    CHECK(card_text(figures, 10) ==
          "1995 MHz (least 1990), 400 W, 0.5 J/token, 51 °C, throttled: power cap");
  }

  TEST_CASE("it keeps reading while something runs, and can start again") {
    FakeMeter meter;
    CardWatch watch(&meter, std::chrono::milliseconds(1));
    watch.begin();
    while (meter.readings < 5) std::this_thread::yield();
    const CardFigures first = watch.end();
    CHECK(first.readings >= 5);
    CHECK(*first.joules == Approx(5.0 * static_cast<double>(first.readings - 1)));
    watch.begin();
    CHECK(*watch.end().joules <= *first.joules);
  }

  TEST_CASE("stretches of time add up") {
    CardFigures all;
    all.add({.processor_mhz_mean = 100, .joules = 3, .throttling = "a", .readings = 1});
    all.add({.processor_mhz_mean = 400, .joules = 4, .throttling = "b", .readings = 2});
    all.add({.readings = 0});
    CHECK(*all.processor_mhz_mean == Approx(300));
    CHECK(*all.joules == Approx(7));
    CHECK(all.throttling == "a, b");
  }

  TEST_CASE("without a card, and with one that does not say, nothing is known") {
    CardWatch none(nullptr);
    none.begin();
    CHECK(none.end().readings == 0);
    const Json json = card_json(none.end(), 5);
    for (const auto& [key, value] : json.items()) CHECK(value.is_null());
    CHECK(card_text(none.end(), 5).empty());

    SilentMeter meter;
    CardWatch silent(&meter);
    silent.begin();
    CHECK_FALSE(silent.end().joules);
    // Opens on a machine with a driver, and is null elsewhere.
    const auto real = open_nvml();
    if (real != nullptr) CHECK(real->read().processor_mhz.value_or(1) > 0);
  }
}

}  // namespace card_watch_test
