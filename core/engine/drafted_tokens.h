#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/base/sampling.h"

namespace hyb {

/// The known tokens of a sequence and, in one piece with them, drafts of what may be drawn next.
/// Branches are other drafts, which may be drawn instead.
class DraftedTokens {
 public:
  struct Branch {
    std::vector<TokenId> tokens;  ///< those known when it was added, and then its drafts
    std::int32_t known;           ///< number of these
    std::int32_t shared;          ///< its first drafts, which are those of an earlier path
  };

  explicit DraftedTokens(std::vector<TokenId> known) : all_(std::move(known)) {}
  void reserve(std::int32_t tokens) { all_.reserve(static_cast<std::size_t>(tokens)); }

  std::span<const TokenId> all() const { return all_; }
  std::int32_t known() const { return static_cast<std::int32_t>(all_.size()) - drafts_; }
  std::int32_t drafts() const { return drafts_; }
  const std::vector<Branch>& branches() const { return branches_; }

  /// Sets what may be drawn next, in this order. There are no drafts yet.
  void set_drafts(std::span<const TokenId> drafts);
  void add_branch(std::span<const TokenId> drafts, std::int32_t shared);
  /// Drops all of them, branches too.
  void drop_drafts();

  bool is_drafted(const SampledToken& sampled) const;
  /// When the token is not the next draft: makes the branch that has the drafts accepted so far
  /// and then this one the drafts. Returns its number; nullopt: there is none.
  std::optional<std::int32_t> take_branch(const SampledToken& sampled);
  /// The token is known from now on. If it was not the next draft, all of them are dropped.
  void accept(const SampledToken& sampled);

 private:
  std::vector<TokenId> all_;
  std::int32_t drafts_ = 0;  ///< at the end
  std::vector<Branch> branches_;
};

}  // namespace hyb
