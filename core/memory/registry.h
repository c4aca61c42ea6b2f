#pragma once

#include <cstddef>
#include <vector>

namespace hyb {

/// Knows where its members are, also after they moved: each carries its index in the registry, and
/// whoever moves it says so. Constant time per call.
template <typename Member>
class Registry {
 public:
  void add(Member& member) {
    member.registry_index_ = members_.size();
    members_.push_back(&member);
  }
  void remove(Member& member) noexcept {
    Member* const last = members_.back();
    last->registry_index_ = member.registry_index_;
    members_[member.registry_index_] = last;
    members_.pop_back();
  }
  /// The member has its registry_index_ already.
  void moved(Member& member) noexcept { members_[member.registry_index_] = &member; }

  const std::vector<Member*>& all() const { return members_; }

 private:
  std::vector<Member*> members_;
};

}  // namespace hyb
