#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/engine/sampling.h"
#include "core/memory/kind.h"
#include "tests/sim/random.h"
#include "tests/sim/toy_model.h"

namespace hyb::sim {

/// The first positions and a window: a kind that only this test knows.
class SinkWindow final : public MemoryKind {
 public:
  SinkWindow(std::int32_t sinks, std::int32_t window) : sinks_(sinks), window_(window) {}
  std::string_view name() const override { return "sink"; }
  bool needs(PositionRange positions, std::int32_t length) const override;

 private:
  std::int32_t sinks_, window_;
};

enum class LayerKind : std::uint8_t { full, window, chunked, sink, shared, recurrent };

struct LayerSpec {
  LayerKind kind;
  std::int32_t reach = 0;   ///< window or chunk
  std::size_t keys_of = 0;  ///< the layer whose keys are read: its own, or with `shared` another's
};

/// What the recurrent layer carries from token to token: a number, and the last inputs of its
/// convolution.
struct Recurrence {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 3> window{};
  bool operator==(const Recurrence&) const = default;
};

/// A model of layers that read the keys of earlier positions, each as its kind allows, and of one
/// recurrent layer: what it says at a position depends on every earlier token, on their order and
/// on where they are kept. Layers of one kind and reach form a page group.
class LayeredModel {
 public:
  explicit LayeredModel(Random& random);

  std::span<const LayerSpec> layers() const { return layers_; }
  bool is_recurrent() const { return is_recurrent_; }
  /// Of layers with keys of their own; the ordinal of a layer within its group.
  std::size_t groups() const { return group_kinds_.size(); }
  const MemoryKind& kind_of(std::size_t group) const { return *group_kinds_[group]; }
  std::size_t group_of(std::size_t layer) const { return group_of_[layer]; }
  std::size_t ordinal_of(std::size_t layer) const { return ordinal_of_[layer]; }

  /// First position that a layer reads at `position`, from the definition of its kind; sinks are
  /// read besides.
  std::int32_t first_read(const LayerSpec& layer, std::int32_t position) const;
  static std::int32_t sinks_of(const LayerSpec& layer) {
    return layer.kind == LayerKind::sink ? 2 : 0;
  }

  /// Runs one token. key(layer, position) are the keys before this one; store(layer, key) takes the
  /// position's own, before it is read. Returns the output.
  template <typename Key, typename Store>
  std::uint64_t run(TokenId token, std::int32_t position, Recurrence& recurrence, Key&& key,
                    Store&& store) const;

  /// Probability of nothing: every draw is finite. Greedy when the temperature is 0.
  SampledToken draw(std::uint64_t output, const SamplingParams& params, std::uint64_t count) const {
    return sim::draw(draws_, output, params, count);
  }
  std::int32_t vocab() const { return draws_.vocab; }

 private:
  void add(Random& random, LayerKind kind);

  std::vector<LayerSpec> layers_;
  std::vector<std::unique_ptr<MemoryKind>> group_kinds_;
  std::vector<std::size_t> group_of_, ordinal_of_;
  bool is_recurrent_ = false;
  ToyModel draws_;
};

inline std::uint64_t advance(Recurrence& recurrence, std::uint64_t input) {
  auto& window = recurrence.window;
  const std::uint64_t mixed = mix(mix(window[0], window[1]), mix(window[2], input));
  window = {window[1], window[2], input};
  recurrence.number = mix(recurrence.number, mixed);
  return recurrence.number;
}

template <typename Key, typename Store>
std::uint64_t LayeredModel::run(TokenId token, std::int32_t position, Recurrence& recurrence,
                                Key&& key, Store&& store) const {
  std::uint64_t x = mix(static_cast<std::uint64_t>(index(token)) + 1, 3);
  for (std::size_t at = 0; at < layers_.size(); ++at) {
    const LayerSpec& layer = layers_[at];
    if (layer.kind == LayerKind::recurrent) {
      x = mix(x, advance(recurrence, x));
      continue;
    }
    if (layer.keys_of == at) store(at, mix(x, at + 17));
    const LayerSpec& owner = layers_[layer.keys_of];
    const std::int32_t first = first_read(owner, position);
    std::uint64_t read = 1;
    for (std::int32_t p = 0; p < std::min(first, sinks_of(owner)); ++p)
      read = mix(read, key(layer.keys_of, p));
    for (std::int32_t p = first; p <= position; ++p) read = mix(read, key(layer.keys_of, p));
    x = mix(x, read);
  }
  return x;
}

/// The meaning of the model: one sequence, plain vectors, no pages, slots, chunks or steps.
class NaiveLayered {
 public:
  explicit NaiveLayered(const LayeredModel& model) : model_(&model), keys_(model.layers().size()) {}
  void push(TokenId token);
  std::uint64_t output() const { return output_; }

 private:
  const LayeredModel* model_;
  std::vector<std::vector<std::uint64_t>> keys_;
  Recurrence recurrence_;
  std::int32_t position_ = 0;
  std::uint64_t output_ = 0;
};

}  // namespace hyb::sim
