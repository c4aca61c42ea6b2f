#include "tests/sim/layered_model.h"

#include <algorithm>

namespace hyb::sim {

bool SinkWindow::needs(PositionRange positions, std::int32_t length) const {
  const auto meets = [&](std::int32_t first, std::int32_t last) {
    return std::max(positions.first, first) < std::min(positions.last, last);
  };
  return meets(0, std::min(sinks_, length)) || meets(length - window_ + 1, length);
}

LayeredModel::LayeredModel(Random& random) {
  draws_.vocab = random.between(2, 12);
  static constexpr LayerKind paged[] = {LayerKind::full, LayerKind::window, LayerKind::chunked,
                                        LayerKind::sink};
  // All kinds at once, one kind alone, or any number of them.
  const std::int32_t mixture = random.between(0, 5);
  if (mixture == 0) {
    add(random, paged[random.below(std::size(paged))]);
  } else if (mixture == 1) {
    add(random, LayerKind::recurrent);
  } else {
    for (const LayerKind kind : paged) {
      if (mixture == 2 || random.chance(50)) add(random, kind);
    }
    if (mixture == 2 || random.chance(75) || layers_.empty()) add(random, LayerKind::recurrent);
    if (random.chance(40) && layers_.front().kind != LayerKind::recurrent) {
      add(random, layers_.front().kind);
    }
  }
  if (layers_.front().kind != LayerKind::recurrent && (mixture == 2 || random.chance(30))) {
    add(random, LayerKind::shared);
  }
}

void LayeredModel::add(Random& random, LayerKind kind) {
  const std::size_t at = layers_.size();
  LayerSpec layer{.kind = kind, .reach = random.between(1, 12), .keys_of = at};
  group_of_.push_back(0);
  ordinal_of_.push_back(0);
  if (kind == LayerKind::shared) {
    layer.keys_of = 0;
  } else if (kind == LayerKind::recurrent) {
    is_recurrent_ = true;
  } else {
    // A second layer of the first one's kind joins its group.
    const bool joins = at > 0 && kind == layers_.front().kind;
    if (joins) {
      layer.reach = layers_.front().reach;
      ordinal_of_[at] = 1;
    } else {
      group_of_[at] = group_kinds_.size();
      switch (kind) {
        case LayerKind::window:
          group_kinds_.push_back(std::make_unique<SlidingWindow>(layer.reach));
          break;
        case LayerKind::chunked:
          group_kinds_.push_back(std::make_unique<ChunkedAttention>(layer.reach));
          break;
        case LayerKind::sink:
          group_kinds_.push_back(std::make_unique<SinkWindow>(2, layer.reach));
          break;
        default:
          group_kinds_.push_back(std::make_unique<FullAttention>());
      }
    }
  }
  layers_.push_back(layer);
}

std::int32_t LayeredModel::first_read(const LayerSpec& layer, std::int32_t position) const {
  switch (layer.kind) {
    case LayerKind::window:
    case LayerKind::sink:
      return std::max(0, position - layer.reach + 1);
    case LayerKind::chunked:
      return position / layer.reach * layer.reach;
    default:
      return 0;
  }
}

void NaiveLayered::push(TokenId token) {
  output_ = model_->run(
      token, position_, recurrence_,
      [&](std::size_t layer, std::int32_t p) { return keys_[layer][static_cast<std::size_t>(p)]; },
      [&](std::size_t layer, std::uint64_t key) { keys_[layer].push_back(key); });
  ++position_;
}

}  // namespace hyb::sim
