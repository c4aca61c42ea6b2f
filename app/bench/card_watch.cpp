#include "app/bench/card_watch.h"

#include <algorithm>
#include <condition_variable>
#include <stop_token>

namespace hyb::app {
namespace {

using Value = std::optional<double>;

/// The mean of `count` values and of `more` further ones.
Value joined_mean(const Value& mean, std::int64_t count, const Value& other, std::int64_t more) {
  if (!mean || !other) return mean ? mean : other;
  const auto weight = static_cast<double>(count), added = static_cast<double>(more);
  return (*mean * weight + *other * added) / std::max(weight + added, 1.0);
}

template <typename Choose>
Value joined(const Value& one, const Value& other, Choose&& choose) {
  if (!one || !other) return one ? one : other;
  return choose(*one, *other);
}

double least(double a, double b) { return std::min(a, b); }
double most(double a, double b) { return std::max(a, b); }
double sum(double a, double b) { return a + b; }

}  // namespace

void CardFigures::add(const CardFigures& more) {
  processor_mhz_mean =
      joined_mean(processor_mhz_mean, readings, more.processor_mhz_mean, more.readings);
  watts_mean = joined_mean(watts_mean, readings, more.watts_mean, more.readings);
  processor_mhz_min = joined(processor_mhz_min, more.processor_mhz_min, least);
  memory_mhz_min = joined(memory_mhz_min, more.memory_mhz_min, least);
  joules = joined(joules, more.joules, sum);
  celsius_max = joined(celsius_max, more.celsius_max, most);
  if (throttling.find(more.throttling) == std::string::npos) {
    throttling += (throttling.empty() ? "" : ", ") + more.throttling;
  }
  readings += more.readings;
}

CardWatch::~CardWatch() { static_cast<void>(end()); }

void CardWatch::look() {
  const CardReading reading = meter_->read();
  const std::lock_guard lock(mutex_);
  if (!first_joules_) first_joules_ = reading.joules;
  last_joules_ = reading.joules;
  figures_.add({.processor_mhz_mean = reading.processor_mhz,
                .processor_mhz_min = reading.processor_mhz,
                .memory_mhz_min = reading.memory_mhz,
                .watts_mean = reading.watts,
                .joules = std::nullopt,
                .celsius_max = reading.celsius,
                .throttling = reading.throttling,
                .readings = 1});
}

void CardWatch::begin() {
  if (meter_ == nullptr) return;
  static_cast<void>(end());
  figures_ = {};
  first_joules_.reset();
  look();
  reader_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex nobody;
    std::condition_variable_any wake;
    std::unique_lock lock(nobody);
    while (!wake.wait_for(lock, stop, interval_, [&] { return stop.stop_requested(); })) look();
  });
}

CardFigures CardWatch::end() {
  if (!reader_.joinable()) return {};
  reader_.request_stop();
  reader_.join();
  look();
  if (first_joules_ && last_joules_) figures_.joules = *last_joules_ - *first_joules_;
  return figures_;
}

}  // namespace hyb::app
