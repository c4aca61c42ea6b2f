#include "kernels/arena/superblock_map.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "core/base/error.h"

namespace hyb::kernels {
namespace {

constexpr std::byte all_bits_set{0xff};

std::size_t sum(const std::vector<std::size_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::size_t{0});
}

}  // namespace

std::size_t SuperblockShape::views_with_memory() const {
  return static_cast<std::size_t>(std::count_if(
      plane_bytes.begin(), plane_bytes.end(), [](const auto& planes) { return sum(planes) > 0; }));
}

std::size_t SuperblockMap::handle_bytes(const SuperblockShape& shape) {
  std::size_t bytes = 0;
  for (const std::vector<std::size_t>& planes : shape.plane_bytes) {
    for (const std::size_t plane : planes) bytes = std::gcd(bytes, plane);
  }
  return bytes == 0 ? shape.handle_bytes : bytes;
}

/// A view of one plane shows memory in its own order, so there neighbours merge into one mapping.
/// Where owners come and go, a gap may follow every mapping.
std::size_t SuperblockMap::mappings_needed(const SuperblockShape& shape,
                                           const SuperblockMapOptions& options) {
  const auto superblocks = static_cast<std::size_t>(shape.superblocks);
  std::size_t all = 0;
  std::size_t most = 0;
  for (const std::vector<std::size_t>& planes : shape.plane_bytes) {
    all += planes.size() <= 1 ? 1 : planes.size() * superblocks;
    most = std::max(most, planes.size() * superblocks);
  }
  return options.mode == MapMode::flip && !options.strict ? all : 2 * most;
}

SuperblockMap::SuperblockMap(std::unique_ptr<Arena> arena, SuperblockShape shape,
                             const SuperblockMapOptions& options)
    : arena_(std::move(arena)), shape_(std::move(shape)), options_(options), prefaulter_(*arena_) {
  check_shape();
  superblocks_.resize(static_cast<std::size_t>(shape_.superblocks));
  for (Superblock& superblock : superblocks_) {
    superblock.mapped.resize(shape_.plane_bytes.size());
  }
  check_mappings();
  try {
    reserve();
    if (options_.mode != MapMode::flip) return;
    for (Superblock& superblock : superblocks_) create(superblock, handles_per_superblock());
    if (!maps_all()) return;
    for (std::size_t v = 0; v < views_.size(); ++v) map_whole(v);
  } catch (...) {
    close();
    throw;
  }
}

SuperblockMap::~SuperblockMap() { close(); }

std::byte* SuperblockMap::plane(ViewId view, std::size_t plane) const {
  return views_.at(static_cast<std::size_t>(index(view))).planes.at(plane).first;
}

void SuperblockMap::own(SuperblockId id, ViewId view) {
  require(index(view) >= 0 && static_cast<std::size_t>(index(view)) < views_.size(),
          "superblocks: an owner is one of the views");
  Superblock& superblock = superblocks_[place(id)];
  const ViewId before = superblock.owner;
  require(options_.mode != MapMode::flat || before == no_view || before == view,
          "superblocks: in mode flat owners never change");
  if (view != before) prefaulter_.cancel(id);
  try {
    // In mode flat no other view ever needs what this one leaves over.
    create(superblock, options_.mode == MapMode::flat
                           ? views_[static_cast<std::size_t>(index(view))].handles
                           : handles_per_superblock());
    show(index(id), view);
    if (options_.poison && view != before) poison(index(id), view);
  } catch (...) {
    restore(index(id));
    throw;
  }
  superblock.owner = view;
}

bool SuperblockMap::commit(SuperblockId id, bool may_create) {
  Superblock& superblock = superblocks_[place(id)];
  if (superblock.handles.size() >= handles_per_superblock()) return true;
  if (!may_create) return false;
  try {
    create(superblock, handles_per_superblock());
    if (maps_all()) show(index(id), no_view);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    restore(index(id));
    return false;
  }
}

void SuperblockMap::prefault(SuperblockId id) {
  const ViewId view = superblocks_[place(id)].owner;
  require(view != no_view, "superblocks: memory is faulted in for an owner");
  for (const Plane& plane : views_[static_cast<std::size_t>(index(view))].planes) {
    const std::size_t bytes = plane.handles * arena_->handle_bytes();
    prefaulter_.add(id, {plane.first + place(id) * bytes, bytes});
  }
}

void SuperblockMap::give_back(SuperblockId id) {
  prefaulter_.cancel(id);
  superblocks_[place(id)].owner = no_view;
  drop(index(id));
}

void SuperblockMap::check_shape() const {
  require(shape_.superblocks >= 0, "superblocks: a count is not negative");
  require(arena_->aliases() || !maps_all() || shape_.views_with_memory() <= 1,
          "superblocks: several views at once need an arena with aliases");
  require(arena_->handle_bytes() == handle_bytes(shape_),
          "superblocks: the arena's handles have the size that all planes allow");
  for (const std::vector<std::size_t>& planes : shape_.plane_bytes) {
    require(sum(planes) <= shape_.superblock_bytes, "superblocks: a view fits its superblock");
    for (const std::size_t plane : planes) {
      require(plane % shape_.handle_bytes == 0, "superblocks: planes are whole handles");
    }
  }
}

void SuperblockMap::check_mappings() const {
  const std::size_t needed = mappings_needed(shape_, options_);
  const std::size_t allowed = arena_->mappings_max();
  if (needed > allowed) {
    throw Error(ErrorKind::memory,
                fmt::format("memory: {} superblocks of {} bytes take up to {} mappings, and this "
                            "system allows {} more in a process; raise vm.max_map_count (sysctl) "
                            "or use a smaller --memory",
                            shape_.superblocks, shape_.superblock_bytes, needed, allowed));
  }
}

void SuperblockMap::reserve() {
  const std::size_t unit = arena_->handle_bytes();
  views_.reserve(shape_.plane_bytes.size());
  for (const std::vector<std::size_t>& planes : shape_.plane_bytes) {
    View& view = views_.emplace_back(View{.planes = {}, .handles = sum(planes) / unit});
    view.planes.reserve(planes.size());
    for (const std::size_t bytes : planes) {
      const std::size_t range = bytes * superblocks_.size();
      std::byte* const first = range == 0 ? nullptr : arena_->reserve(range);
      view.planes.push_back({.first = first, .handles = bytes / unit, .bytes = range});
    }
  }
}

/// Never throws; what the driver does not take back now it takes back when the process ends.
void SuperblockMap::close() noexcept {
  prefaulter_.stop();
  const auto attempt = [](const auto& action) {
    try {
      action();
    } catch (const Error&) {
    }
  };
  for (std::size_t v = 0; v < views_.size(); ++v) {
    attempt([&] { unmap_whole(v); });
  }
  for (std::int32_t b = 0; b < shape_.superblocks && !views_.empty(); ++b) {
    attempt([&] { drop(b); });
  }
  for (const View& view : views_) {
    for (const Plane& plane : view.planes) {
      if (plane.first != nullptr) attempt([&] { arena_->unreserve(plane.first, plane.bytes); });
    }
  }
}

std::size_t SuperblockMap::handles_per_superblock() const {
  std::size_t most = 0;
  for (const View& view : views_) most = std::max(most, view.handles);
  return most;
}

void SuperblockMap::create(Superblock& superblock, std::size_t handles) {
  superblock.handles.reserve(handles);
  while (superblock.handles.size() < handles) superblock.handles.push_back(arena_->create());
}

/// Maps what is not mapped yet; resumes where a failure stopped it.
void SuperblockMap::map(std::int32_t b, std::size_t view) {
  Superblock& superblock = superblocks_[static_cast<std::size_t>(b)];
  std::size_t& mapped = superblock.mapped[view];
  std::size_t begin = 0;
  for (const Plane& plane : views_[view].planes) {
    const std::size_t end = begin + plane.handles;
    if (mapped < end) {
      const std::size_t first = static_cast<std::size_t>(b) * plane.handles + (mapped - begin);
      arena_->map(plane.first + first * arena_->handle_bytes(),
                  std::span(superblock.handles).subspan(mapped, end - mapped));
      mapped = end;
    }
    begin = end;
  }
}

void SuperblockMap::unmap(std::int32_t b, std::size_t view) {
  Superblock& superblock = superblocks_[static_cast<std::size_t>(b)];
  std::size_t& mapped = superblock.mapped[view];
  std::size_t begin = views_[view].handles;
  for (auto plane = views_[view].planes.rbegin(); plane != views_[view].planes.rend(); ++plane) {
    begin -= plane->handles;
    if (mapped <= begin) continue;
    const std::size_t first = static_cast<std::size_t>(b) * plane->handles;
    arena_->unmap(plane->first + first * arena_->handle_bytes(),
                  std::span(superblock.handles).subspan(begin, mapped - begin));
    mapped = begin;
  }
}

/// All superblocks, none of which the view shows yet: one range per plane, so that access to it is
/// set once.
void SuperblockMap::map_whole(std::size_t view) {
  std::size_t begin = 0;
  for (const Plane& plane : views_[view].planes) {
    if (plane.handles == 0) continue;
    std::vector<HandleId> handles;
    handles.reserve(superblocks_.size() * plane.handles);
    for (const Superblock& superblock : superblocks_) {
      const auto own = std::span(superblock.handles).subspan(begin, plane.handles);
      handles.insert(handles.end(), own.begin(), own.end());
    }
    if (!handles.empty()) arena_->map(plane.first, handles);
    begin += plane.handles;
    for (Superblock& superblock : superblocks_) superblock.mapped[view] = begin;
  }
}

/// Unmaps what the view shows of all superblocks, neighbours together: most often one range per
/// plane.
void SuperblockMap::unmap_whole(std::size_t view) {
  std::size_t begin = 0;
  for (const Plane& plane : views_[view].planes) {
    std::vector<HandleId> run;
    std::byte* run_first = nullptr;
    const auto end_run = [&] {
      if (!run.empty()) arena_->unmap(run_first, run);
      run.clear();
    };
    for (std::size_t b = 0; b < superblocks_.size(); ++b) {
      const Superblock& superblock = superblocks_[b];
      const std::size_t mapped = superblock.mapped[view];
      const std::size_t own = std::min(mapped - std::min(mapped, begin), plane.handles);
      if (own > 0 && run.empty()) {
        run_first = plane.first + b * plane.handles * arena_->handle_bytes();
      }
      run.insert(run.end(), superblock.handles.begin() + static_cast<std::ptrdiff_t>(begin),
                 superblock.handles.begin() + static_cast<std::ptrdiff_t>(begin + own));
      if (own < plane.handles) end_run();
    }
    end_run();
    begin += plane.handles;
  }
  for (Superblock& superblock : superblocks_) superblock.mapped[view] = 0;
}

/// The new owner's view is mapped before the old one is unmapped, so that a failure can be undone.
void SuperblockMap::show(std::int32_t b, ViewId view) {
  for (std::size_t v = 0; v < views_.size(); ++v) {
    if (maps_all() || static_cast<std::int32_t>(v) == index(view)) map(b, v);
  }
  for (std::size_t v = 0; v < views_.size(); ++v) {
    if (!maps_all() && static_cast<std::int32_t>(v) != index(view)) unmap(b, v);
  }
}

/// After a failed change of owner, or of the memory of a superblock.
void SuperblockMap::restore(std::int32_t b) noexcept {
  const ViewId owner = superblocks_[static_cast<std::size_t>(b)].owner;
  try {
    if (owner == no_view) {
      drop(b);
    } else {
      show(b, owner);
    }
  } catch (const Error&) {
    // The first failure is the one that is reported; the next change of owner finishes what is
    // left.
  }
}

void SuperblockMap::drop(std::int32_t b) {
  Superblock& superblock = superblocks_[static_cast<std::size_t>(b)];
  for (std::size_t v = 0; v < views_.size(); ++v) unmap(b, v);
  for (; !superblock.handles.empty(); superblock.handles.pop_back()) {
    arena_->release(superblock.handles.back());
  }
}

void SuperblockMap::poison(std::int32_t b, ViewId view) {
  for (const Plane& plane : views_[static_cast<std::size_t>(index(view))].planes) {
    const std::size_t bytes = plane.handles * arena_->handle_bytes();
    if (bytes > 0) {
      arena_->fill(plane.first + static_cast<std::size_t>(b) * bytes, bytes, all_bits_set);
    }
  }
}

std::size_t SuperblockMap::place(SuperblockId superblock) const {
  const auto place = static_cast<std::size_t>(index(superblock));
  require(index(superblock) >= 0 && place < superblocks_.size(),
          "superblocks: a superblock that exists");
  return place;
}

}  // namespace hyb::kernels
