#include "models/memory_layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/base/error.h"

namespace hyb::models {

std::unique_ptr<MemoryKind> kind_of(const Reach& reach) {
  switch (reach.kind) {
    case Reach::Kind::window:
      return std::make_unique<SlidingWindow>(reach.tokens);
    case Reach::Kind::chunk:
      return std::make_unique<ChunkedAttention>(reach.tokens);
    case Reach::Kind::all:
      break;
  }
  return std::make_unique<FullAttention>();
}

namespace {

constexpr std::array waste_levels = {0.03, 0.02, 0.01, 0.005, 0.0025};
/// For pools with only a few of the superblocks that meet the levels above: memory that cannot
/// change its owner would be the larger loss.
constexpr std::array waste_levels_of_few = {0.06, 0.12, 0.25};
constexpr std::size_t superblocks_few = 16;
constexpr std::size_t superblock_bytes_max = std::size_t{2} << 30;
/// A search over more sizes takes long and gains little: larger ones are tried in larger steps.
constexpr std::size_t handles_max = 8192;
/// Larger ones leave too much idle in every model.
constexpr std::size_t handle_bytes_largest = std::size_t{64} << 20;
constexpr std::int32_t units_max = std::int32_t{1} << 30;

/// Layers by reach.
void group_layers(const Geometry& geometry, bool flat, ModelMemoryLayout& memory) {
  std::vector<Reach> reaches;
  for (std::size_t ordinal = 0; ordinal < geometry.pages.size(); ++ordinal) {
    const PageLayout& page = geometry.pages[ordinal];
    const Reach reach = flat ? Reach{} : page.reach;
    const auto found = std::find(reaches.begin(), reaches.end(), reach);
    const auto group = static_cast<std::size_t>(found - reaches.begin());
    if (found == reaches.end()) {
      reaches.push_back(reach);
      memory.kinds.push_back(kind_of(reach));
      memory.layers.emplace_back();
      memory.layout.groups.push_back(
          {.kind = memory.kinds.back().get(), .page_bytes = 0, .pages_per_superblock = 0});
    }
    memory.layers[group].push_back(ordinal);
    memory.layout.groups[group].page_bytes += page.page_bytes;
  }
}

/// Views to cut a superblock for, and what their units need.
struct ViewRequests {
  std::vector<ViewRequest> views;
  std::vector<std::size_t> unit_bytes;  ///< 0: no units
  std::int32_t slots_min = 2;           ///< 1 or 2 must fit
};

ViewRequests requests_of(const Geometry& geometry, const ModelMemoryLayout& memory) {
  ViewRequests requests;
  for (const std::vector<std::size_t>& layers : memory.layers) {
    ViewRequest view;
    std::size_t unit = 0;
    for (const std::size_t ordinal : layers) {
      view.plane_unit_bytes.push_back(geometry.pages[ordinal].page_bytes);
      unit += geometry.pages[ordinal].page_bytes;
    }
    requests.views.push_back(std::move(view));
    requests.unit_bytes.push_back(unit);
  }
  for (const std::size_t bytes : {geometry.slot_bytes, memory.snapshot.bytes, memory.ring.bytes}) {
    ViewRequest view{.plane_unit_bytes = {}, .may_stretch = true};
    if (bytes != 0) view.plane_unit_bytes.push_back(bytes);
    requests.views.push_back(std::move(view));
    requests.unit_bytes.push_back(bytes);
  }
  return requests;
}

/// The same with slots, snapshots and rings of whole handles, one after the other, where that costs
/// little: then no size has to be a multiple of another.
ViewRequests rounded(const ViewRequests& requests, std::size_t handle_bytes) {
  ViewRequests result = requests;
  for (std::size_t v = 0; v < result.views.size(); ++v) {
    ViewRequest& view = result.views[v];
    if (!view.may_stretch || view.plane_unit_bytes.empty()) continue;
    const std::size_t bytes = requests.unit_bytes[v];
    const std::size_t whole = (bytes + handle_bytes - 1) / handle_bytes * handle_bytes;
    if (static_cast<double>(whole - bytes) > waste_levels.front() * static_cast<double>(whole)) {
      continue;
    }
    view = {.plane_unit_bytes = {whole}, .may_stretch = false};
  }
  return result;
}

/// The largest share of a superblock that one of the views cannot use.
double waste_of(const ViewRequests& requests, const SuperblockPlan& plan) {
  double most = 0.0;
  for (std::size_t v = 0; v < requests.views.size(); ++v) {
    if (requests.unit_bytes[v] == 0) continue;
    const double used =
        static_cast<double>(requests.unit_bytes[v]) * plan.views[v].units_per_superblock;
    most = std::max(most, 1.0 - used / static_cast<double>(plan.superblock_bytes()));
  }
  return most;
}

/// Superblocks without which no sequence runs; it may have no drafts.
std::size_t superblocks_needed(const ViewRequests& requests, const SuperblockPlan& plan) {
  const std::size_t groups = plan.views.size() - 3;
  const std::int32_t slots = plan.views[groups].units_per_superblock;
  return groups + (slots == 0 ? 0 : slots < requests.slots_min ? 2 : 1);
}

/// A superblock and the bytes of the pool that are expected to be idle with it.
struct Choice {
  SuperblockPlan plan;
  double idle_bytes;
};

bool better(const std::optional<Choice>& a, const std::optional<Choice>& b) {
  return a && (!b || a->idle_bytes < b->idle_bytes);
}

double views_used(const ViewRequests& requests) {
  return static_cast<double>(requests.unit_bytes.size()) -
         static_cast<double>(std::count(requests.unit_bytes.begin(), requests.unit_bytes.end(), 0));
}

double idle_bytes_of(const ViewRequests& requests, const SuperblockPlan& plan,
                     std::size_t pool_bytes) {
  const double open = views_used(requests) * static_cast<double>(plan.superblock_bytes()) / 2;
  return open + waste_of(requests, plan) * static_cast<double>(pool_bytes);
}

/// Empty: no superblock of these handles up to bytes_max meets the level, or too few of them fit
/// the pool.
std::optional<Choice> try_level(const ViewRequests& requests, std::size_t handle, double waste_max,
                                std::size_t bytes_max, std::size_t pool_bytes) {
  if (bytes_max < *std::max_element(requests.unit_bytes.begin(), requests.unit_bytes.end())) {
    return std::nullopt;
  }
  try {
    SuperblockPlan plan = plan_superblocks(requests.views, handle, bytes_max, waste_max);
    if (waste_of(requests, plan) > waste_max) return std::nullopt;  // plus what whole handles cost
    const std::size_t superblock = plan.superblock_bytes();
    if (superblocks_needed(requests, plan) * superblock > pool_bytes) return std::nullopt;
    const double idle = idle_bytes_of(requests, plan, pool_bytes);
    return Choice{std::move(plan), idle};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return std::nullopt;
  }
}

std::optional<Choice> best_of_levels(const ViewRequests& requests,
                                     const MemoryLayoutOptions& options,
                                     std::span<const double> levels) {
  std::optional<Choice> best;
  const auto try_all = [&](const ViewRequests& variant, std::size_t handle) {
    for (const double level : levels) {
      std::size_t bytes_max =
          std::min({options.pool_bytes, superblock_bytes_max, handles_max * handle});
      if (best) {  // a larger superblock loses by its size alone
        bytes_max = std::min(bytes_max,
                             static_cast<std::size_t>(2 * best->idle_bytes / views_used(requests)));
      }
      std::optional<Choice> choice =
          try_level(variant, handle, level, bytes_max, options.pool_bytes);
      if (better(choice, best)) best = std::move(choice);
    }
  };
  for (std::size_t handle = options.handle_bytes_max; handle >= options.handle_bytes_min;
       handle /= 4) {
    try_all(rounded(requests, handle), handle);
    try_all(requests, handle);
  }
  return best;
}

std::optional<Choice> best_superblock(const ViewRequests& requests,
                                      const MemoryLayoutOptions& options) {
  std::optional<Choice> best = best_of_levels(requests, options, waste_levels);
  const bool few = best && options.pool_bytes / best->plan.superblock_bytes() < superblocks_few;
  if (best && !(few && options.packed)) return best;
  std::optional<Choice> small = best_of_levels(requests, options, waste_levels_of_few);
  return better(small, best) ? small : best;
}

/// Several superblocks joined as one: all proportions stay.
void enlarge(SuperblockPlan& plan, std::int32_t times) {
  plan.handles *= times;
  for (ViewPlan& view : plan.views) {
    view.units_per_superblock *= times;
    for (std::size_t& bytes : view.plane_bytes) bytes *= static_cast<std::size_t>(times);
  }
}

kernels::SuperblockShape shape_of(const SuperblockPlan& plan, std::int32_t superblocks) {
  kernels::SuperblockShape shape = {.handle_bytes = plan.handle_bytes,
                                    .superblock_bytes = plan.superblock_bytes(),
                                    .superblocks = superblocks,
                                    .plane_bytes = {}};
  for (const ViewPlan& view : plan.views) shape.plane_bytes.push_back(view.plane_bytes);
  return shape;
}

/// Returns by which factor superblocks have to grow so that mappings and driver calls stay within
/// their limits: joined superblocks have handles that are larger by as much.
std::size_t times_to_join(const MemoryLayoutOptions& options, const SuperblockPlan& plan) {
  std::size_t planes = 0;
  for (const ViewPlan& view : plan.views) planes += view.plane_bytes.size();
  const std::size_t mappings = options.pool_bytes / plan.superblock_bytes() * planes;
  const kernels::SuperblockShape shape = shape_of(plan, 0);
  const std::size_t handles = options.pool_bytes / kernels::SuperblockMap::handle_bytes(shape);
  const std::size_t calls = handles * (1 + shape.views_with_memory());
  const auto times = [](std::size_t count, std::size_t most) {
    return count / most + (count % most == 0 ? 0 : 1);
  };
  return std::max({std::size_t{1}, times(mappings, options.mappings_max),
                   times(calls, options.driver_calls_max)});
}

/// Joins groups as far as the pool has room for as many as it needs.
void join(const ViewRequests& requests, const MemoryLayoutOptions& options, Choice& choice) {
  SuperblockPlan& plan = choice.plan;
  const std::size_t needed = superblocks_needed(requests, plan) * plan.superblock_bytes();
  const std::size_t times = std::min(times_to_join(options, plan), options.pool_bytes / needed);
  if (times <= 1) return;
  enlarge(plan, static_cast<std::int32_t>(times));
  choice.idle_bytes = idle_bytes_of(requests, plan, options.pool_bytes);
}

/// The choice within the limits: with superblocks joined, or with larger handles, whichever leaves
/// fewer bytes idle.
Choice limited(const ViewRequests& requests, const MemoryLayoutOptions& options, Choice best) {
  const bool is_dear = times_to_join(options, best.plan) > 1;
  join(requests, options, best);
  MemoryLayoutOptions larger = options;
  while (is_dear && larger.handle_bytes_max < handle_bytes_largest) {
    larger.handle_bytes_max *= 2;
    larger.handle_bytes_min = larger.handle_bytes_max;
    std::optional<Choice> choice = best_superblock(requests, larger);
    if (!choice) continue;
    join(requests, options, *choice);
    if (times_to_join(options, choice->plan) == 1 && choice->idle_bytes < best.idle_bytes) {
      best = std::move(*choice);
    }
  }
  return best;
}

double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

[[noreturn]] void fail_too_small(const Geometry& geometry, const MemoryLayoutOptions& options) {
  throw Error(ErrorKind::memory,
              fmt::format("the pools do not fit: a page of {} tokens takes {:.2f} MiB, a state "
                          "{:.2f} MiB, and both are given {:.2f} MiB; these are too few for units "
                          "that hold whole pages or whole states",
                          geometry.page_tokens, mib(geometry.page_bytes), mib(geometry.slot_bytes),
                          mib(options.pool_bytes)));
}

/// Rings for the sequences, up to an eighth of the superblocks; slots for them, up to half of the
/// others or what their pages leave; the rest is pages.
std::vector<std::int32_t> split(const MemoryLayout& layout, const FlatPools& wanted) {
  std::vector<std::int32_t> fixed(static_cast<std::size_t>(layout.views()), 0);
  std::int32_t superblocks = layout.superblocks;
  if (const std::int32_t per_rings = layout.rings.per_superblock; per_rings != 0) {
    const std::int32_t rings =
        std::min((wanted.sequences + per_rings - 1) / per_rings, superblocks / 8);
    fixed[static_cast<std::size_t>(index(layout.ring_view()))] = rings;
    superblocks -= rings;
  }
  const std::int32_t per_slots = layout.slots.per_superblock;
  std::int32_t slots = 0;
  if (per_slots != 0) {
    const std::int32_t needed = (wanted.sequences + per_slots) / per_slots;  // one slot to spare
    slots = layout.groups.empty() ? superblocks : needed;
  }
  if (!layout.groups.empty()) {
    const PageGroup& group = layout.groups.front();
    const std::int64_t pages = (std::int64_t{wanted.tokens} + layout.page_tokens - 1) /
                               layout.page_tokens * wanted.sequences;
    const std::int64_t for_pages =
        (pages + group.pages_per_superblock - 1) / group.pages_per_superblock;
    if (per_slots != 0) {
      const std::int32_t least = per_slots == 1 ? 2 : 1;
      const auto left = static_cast<std::int32_t>(
          std::max<std::int64_t>(superblocks - for_pages, superblocks / 2));
      slots = std::clamp(slots, least, std::max(least, std::min(left, superblocks - 1)));
    }
    fixed.front() = superblocks - slots;
  }
  fixed[static_cast<std::size_t>(index(layout.slot_view()))] = slots;
  return fixed;
}

void fill_layout(const Geometry& geometry, const MemoryLayoutOptions& options,
                 ModelMemoryLayout& memory) {
  MemoryLayout& layout = memory.layout;
  const std::vector<ViewPlan>& views = memory.superblock.views;
  layout.page_tokens = layout.groups.empty() ? 0 : geometry.page_tokens;
  std::int32_t units = 1;
  for (std::size_t v = 0; v < views.size(); ++v) {
    units = std::max(units, views[v].units_per_superblock);
    if (v < layout.groups.size()) {
      layout.groups[v].pages_per_superblock = views[v].units_per_superblock;
    } else if (!views[v].plane_bytes.empty()) {
      const auto count = static_cast<std::size_t>(views[v].units_per_superblock);
      const std::size_t stride = views[v].plane_bytes.front() / count;
      SlotShape* const shapes[] = {&layout.slots, &layout.packed, &layout.rings};
      const std::size_t used[] = {memory.slot_bytes, memory.snapshot.bytes, memory.ring.bytes};
      const std::size_t kind = v - layout.groups.size();
      *shapes[kind] = {.bytes = stride,
                       .per_superblock = views[v].units_per_superblock,
                       .padding_bytes = stride - used[kind]};
    }
  }
  layout.superblock_bytes = memory.superblock.superblock_bytes();
  layout.superblocks = static_cast<std::int32_t>(std::min<std::size_t>(
      options.pool_bytes / layout.superblock_bytes, static_cast<std::size_t>(units_max / units)));
  if (options.flat) layout.fixed_superblocks = split(layout, *options.flat);
  memory.superblocks = shape_of(memory.superblock, layout.superblocks);
}

}  // namespace

double ModelMemoryLayout::bytes_held(ViewId view) const {
  const std::int32_t units = layout.units_per_superblock(view);
  return units == 0 ? 0.0 : static_cast<double>(layout.superblock_bytes) / units;
}

double ModelMemoryLayout::waste() const {
  double most = 0.0;
  for (std::int32_t v = 0; v < layout.views(); ++v) {
    const ViewId view{v};
    if (layout.units_per_superblock(view) == 0) continue;
    const std::size_t used = view == layout.slot_view()     ? slot_bytes
                             : view == layout.packed_view() ? snapshot.bytes
                             : view == layout.ring_view()   ? ring.bytes
                                                            : layout.unit_bytes(view);
    most = std::max(most, 1.0 - static_cast<double>(used) / bytes_held(view));
  }
  return most;
}

std::vector<std::size_t> draft_unit_bytes(const Plan& plan, const Geometry& geometry,
                                          const ModelMemoryLayout& memory) {
  if (!plan.draft) return {};
  std::vector<std::size_t> bytes(static_cast<std::size_t>(memory.layout.views()), 0);
  const auto drafts = [&](const auto& entry) { return entry.layer >= std::ssize(plan.layers); };
  for (std::size_t group = 0; group < memory.layers.size(); ++group) {
    for (const std::size_t ordinal : memory.layers[group]) {
      const PageLayout& page = geometry.pages[ordinal];
      if (drafts(page)) bytes[group] += page.page_bytes;
    }
  }
  const auto first = std::find_if(geometry.pieces.begin(), geometry.pieces.end(), drafts);
  if (first == geometry.pieces.end()) return bytes;
  const auto of = [&](ViewId view) -> std::size_t& {
    return bytes[static_cast<std::size_t>(index(view))];
  };
  of(memory.layout.slot_view()) = geometry.slot_bytes - first->conv_offset;
  if (memory.snapshot.bytes == 0) return bytes;
  const auto piece = static_cast<std::size_t>(first - geometry.pieces.begin());
  of(memory.layout.packed_view()) =
      memory.snapshot.bytes - memory.snapshot.pieces[piece].packed_window;
  return bytes;
}

std::size_t page_groups(const Geometry& geometry, bool is_flat) {
  ModelMemoryLayout memory;
  group_layers(geometry, is_flat, memory);
  return memory.layers.size();
}

ModelMemoryLayout memory_layout_of(const Geometry& geometry, const MemoryLayoutOptions& options) {
  ModelMemoryLayout memory;
  memory.slot_bytes = geometry.slot_bytes;
  group_layers(geometry, options.flat.has_value(), memory);
  if (options.packed && !options.flat) memory.snapshot = snapshot_layout(geometry);
  memory.ring = ring_layout(geometry, options.ring_tokens);
  memory.layout.ring_tokens = options.ring_tokens;
  ViewRequests requests = requests_of(geometry, memory);
  std::optional<Choice> best = best_superblock(requests, options);
  if (!best && !options.flat) {
    requests.slots_min = 1;
    best = best_superblock(requests, options);
  }
  if (!best) fail_too_small(geometry, options);
  memory.superblock = limited(requests, options, std::move(*best)).plan;
  fill_layout(geometry, options, memory);
  return memory;
}

namespace {

/// Small pools have small handles, large ones few handles.
std::size_t handle_bytes_for(std::size_t pool_bytes) {
  constexpr std::size_t large = std::size_t{1} << 30;
  return pool_bytes < large ? 4096 : 65536;
}

/// A superblock of rings, which is the last one.
void add_rings(std::int32_t count, StoreLayout& memory) {
  MemoryLayout& layout = memory.layout;
  layout.rings = {.bytes = memory.ring.bytes, .per_superblock = count};
  layout.superblock_bytes =
      std::max(layout.superblock_bytes, static_cast<std::size_t>(count) * memory.ring.bytes);
  layout.fixed_superblocks.back() = 1;
  ++layout.superblocks;
}

}  // namespace

StoreLayout flat_memory(const Geometry& geometry, std::int32_t pages, std::int32_t slots,
                        std::size_t handle_bytes_min, FlatRings rings) {
  StoreLayout memory;
  memory.layout = flat_layout({.pages = geometry.page_bytes == 0 ? 0 : pages,
                               .slots = geometry.slot_bytes == 0 ? 0 : slots,
                               .page_tokens = geometry.page_tokens,
                               .page_bytes = geometry.page_bytes,
                               .slot_bytes = geometry.slot_bytes});
  memory.layout.ring_tokens = rings.tokens;
  if (rings.count > 0) memory.ring = ring_layout(geometry, rings.tokens);
  if (memory.ring.bytes > 0) add_rings(rings.count, memory);
  const std::size_t handle =
      std::max(handle_bytes_min, handle_bytes_for(memory.layout.store_bytes()));
  const auto whole = [&](std::size_t bytes) { return (bytes + handle - 1) / handle * handle; };
  std::vector<std::vector<std::size_t>> planes;
  if (!memory.layout.groups.empty()) {
    planes.emplace_back();
    memory.layers.emplace_back(geometry.pages.size());
    std::iota(memory.layers[0].begin(), memory.layers[0].end(), std::size_t{0});
    for (const PageLayout& page : geometry.pages) {
      planes[0].push_back(whole(static_cast<std::size_t>(pages) * page.page_bytes));
    }
  }
  const SlotShape& slot = memory.layout.slots;
  planes.push_back({whole(static_cast<std::size_t>(slot.per_superblock) * slot.bytes)});
  planes.emplace_back();
  planes.emplace_back();
  const SlotShape& ring = memory.layout.rings;
  if (ring.per_superblock > 0) {
    planes.back() = {whole(static_cast<std::size_t>(ring.per_superblock) * ring.bytes)};
  }
  std::size_t superblock = 0;
  for (const std::vector<std::size_t>& view : planes) {
    superblock = std::max(superblock, std::accumulate(view.begin(), view.end(), std::size_t{0}));
  }
  memory.superblocks = {.handle_bytes = handle,
                        .superblock_bytes = superblock,
                        .superblocks = memory.layout.superblocks,
                        .plane_bytes = std::move(planes)};
  return memory;
}

}  // namespace hyb::models
