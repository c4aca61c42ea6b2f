#include "core/constraint/constraint.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"

namespace hyb {
namespace {

constexpr std::size_t place_items_max = 2'000;     // of a place: more is an ambiguous grammar
constexpr std::size_t mask_work_max = 40'000'000;  // items looked at for one mask or token
using Kind = Grammar::Kind;

std::size_t mixed(std::size_t hash, std::int32_t value) {
  return (hash ^ static_cast<std::uint32_t>(value)) * 0x9E3779B97F4A7C15ULL + (hash >> 29);
}

void set_bit(std::span<std::uint32_t> mask, TokenId token, bool value) {
  const auto bit = static_cast<std::uint32_t>(token);
  mask[bit / 32] = (mask[bit / 32] & ~(1U << (bit % 32))) | std::uint32_t{value} << (bit % 32);
}

}  // namespace

std::size_t Constraint::Hash::operator()(std::span<const Item> items) const {
  std::size_t hash = 1;
  for (const Item& item : items) hash = mixed(mixed(hash, item.frame), item.state);
  return hash;
}

Constraint::Constraint(const Grammar& grammar, const VocabularyTrie& vocabulary,
                       const Limits& limits)
    : grammar_(grammar),
      vocabulary_(vocabulary),
      limits_(limits),
      classes_(static_cast<std::size_t>(grammar.class_count())),
      path_(vocabulary.longest_bytes() + 1) {
  id_of(Frame());
}

Constraint::PlaceId Constraint::start() {
  work_ = 0;
  found_.clear();
  find({0, grammar_.start()});
  return close();
}

Constraint::PlaceId Constraint::step(PlaceId place, std::string_view bytes) {
  for (const char byte : bytes) {
    if (place < 0) return dead;
    place = step(place, static_cast<std::uint8_t>(byte));
  }
  return place;
}

Constraint::PlaceId Constraint::find_step(PlaceId from, std::uint8_t byte) {
  found_.clear();
  for (const Item& item : places_[index(from)]->items) {
    const auto edges = grammar_.edges(item.state);
    work_ += edges.size();
    for (const Grammar::Edge& edge : edges) {
      if (edge.kind == Kind::range && edge.low <= byte && byte <= edge.high)
        find({item.frame, edge.to});
    }
  }
  const PlaceId to = close();
  steps_[index(from) * classes_ + grammar_.byte_class(byte)] = to;
  return to;
}

void Constraint::find(Item item) {
  if (frame(item.frame).depth + grammar_.height(item.state) > Grammar::depth_max) return;
  // Most places have a few items; a search among these is faster than a table.
  work_ += found_.size();
  if (std::find(found_.begin(), found_.end(), item) != found_.end()) return;
  if (found_.size() >= place_items_max || work_ > mask_work_max) {
    throw Error(ErrorKind::usage, grammar_.source() + ": too ambiguous: a text has more than " +
                                      std::to_string(place_items_max) +
                                      " readings, or they take too long to follow");
  }
  found_.push_back(item);
}

void Constraint::call(Item site, std::int32_t start) {
  const int depth = frame(site.frame).depth + 1;
  const auto is_same = [&](const Call& call) {
    return call.start == start && call.frame.depth == depth;
  };
  auto call = std::ranges::find_if(calls_, is_same);
  if (call == calls_.end()) call = calls_.insert(call, {start, {{}, depth}});
  work_ += calls_.size();
  call->frame.returns.push_back(site);
  if (call->ended) find(site);
  find({static_cast<std::int32_t>(calls_.begin() - call) - 1, start});
}

Constraint::PlaceId Constraint::close() {
  Place place;
  calls_.clear();
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const Item item = found_[i];
    const int depth = frame(item.frame).depth;
    if (grammar_.is_end(item.state)) {
      place.accepts |= item.frame == 0;
      if (item.frame < 0) calls_[index(-1 - item.frame)].ended = true;
      for (const Item& site : frame(item.frame).returns) find(site);
    }
    bool reads = false;
    for (const Grammar::Edge& edge : grammar_.edges(item.state)) {
      reads |= edge.kind == Kind::range;
      if (edge.kind != Kind::call) continue;
      if (grammar_.is_tail(edge.to))
        find({item.frame, grammar_.rule_start(edge)});
      else if (depth + grammar_.height(edge.to) <= Grammar::depth_max)
        call({item.frame, edge.to}, grammar_.rule_start(edge));
    }
    const bool is_deep = depth + Grammar::text_height >= Grammar::depth_max;
    for (std::size_t kind = 0; kind < place.text.size() && !is_deep; ++kind)
      place.text[kind] = std::max(place.text[kind], grammar_.text(item.state, kind));
    if (reads) place.items.push_back(item);
  }
  if (place.items.empty() && !place.accepts) return dead;
  renumber(place.items, [&](std::int32_t id) { return id_of_call(id); });
  return id_of(std::move(place));
}

template <typename Renumber>
void Constraint::renumber(std::vector<Item>& items, Renumber&& id) {
  for (Item& item : items) item.frame = id(item.frame);
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

std::int32_t Constraint::id_of_call(std::int32_t id) {
  if (id >= 0) return id;
  Call& call = calls_[index(-1 - id)];
  if (call.id < 0) {
    // Returns are in frames that are less deep.
    renumber(call.frame.returns, [&](std::int32_t site) { return id_of_call(site); });
    call.id = id_of(call.frame);
  }
  return call.id;
}

Constraint::PlaceId Constraint::id_of(Place place) {
  const std::size_t bytes = place.items.size() * sizeof(Item) + classes_ * sizeof(PlaceId) + 96;
  const auto [entry, is_new] =
      place_ids_.try_emplace(std::move(place), static_cast<PlaceId>(places_.size()));
  if (is_new) {
    places_.push_back(&entry->first);
    steps_.resize(steps_.size() + classes_, unknown);
    bytes_ += bytes;
  }
  return entry->second;
}

std::int32_t Constraint::id_of(Frame frame) {
  const std::size_t bytes = frame.returns.size() * sizeof(Item) + sizeof(Frame) + 48;
  const auto [entry, is_new] =
      frame_ids_.try_emplace(std::move(frame), static_cast<std::int32_t>(frames_.size()));
  if (is_new) {
    frames_.push_back(&entry->first);
    bytes_ += bytes;
  }
  return entry->second;
}

std::span<const std::uint32_t> Constraint::mask(PlaceId place) {
  const auto known = masks_.find(place);
  if (known != masks_.end()) return known->second;
  if ((masks_.size() + 1) * vocabulary_.words() * sizeof(std::uint32_t) > limits_.mask_bytes_max)
    masks_.clear();
  std::vector<std::uint32_t> mask(vocabulary_.words());
  work_ = 0;
  fill(place, mask);
  return masks_[place] = std::move(mask);
}

void Constraint::fill(PlaceId place, std::span<std::uint32_t> mask) {
  if (place < 0) return;
  const bool accepts = places_[index(place)]->accepts;
  for (const auto kind : {VocabularyTrie::word, VocabularyTrie::text, VocabularyTrie::other})
    walk(place, kind, mask);
  if (!accepts) return;
  for (const TokenId token : vocabulary_.ends()) set_bit(mask, token, true);
}

void Constraint::walk(PlaceId place, VocabularyTrie::Kind kind, std::span<std::uint32_t> mask) {
  const VocabularyTrie::Part& part = vocabulary_.part(kind);
  const auto longest = static_cast<int>(part.longest);
  // Where most characters may be followed by any others, tokens are taken away instead of added.
  int free = 0;
  for (std::uint8_t byte = 'a'; byte <= 'z' && kind != VocabularyTrie::other; ++byte)
    free += text(step(place, byte), kind) >= longest - 1;
  const bool is_all = text(place, kind) >= longest && kind != VocabularyTrie::other;
  const bool from_all = is_all || free > 13;
  for (std::size_t i = 0; i < mask.size() && from_all; ++i) mask[i] |= part.mask[i];
  if (is_all) return;
  path_[0] = place;
  const std::size_t last = part.nodes.size() - 1;
  for (std::size_t i = 0; i < last;) {
    const VocabularyTrie::Node& node = part.nodes[i];
    const PlaceId next = step(path_[node.depth], node.byte);
    // None within a character, where a height does not count what is left of it.
    const int free_texts = text(next, kind);
    const bool all = free_texts > 0 && free_texts >= node.height;
    // All tokens that begin so are decided, or else only those that end here.
    const std::size_t end = next < 0 || all ? node.end : i + 1;
    if ((next < 0) == from_all) {
      for (std::size_t k = node.first; k < part.nodes[end].first; ++k)
        set_bit(mask, part.tokens[k], !from_all);
    }
    path_[node.depth + std::size_t{1}] = next;
    i = end;
  }
}

void Constraint::collect() {
  if (bytes_ <= limits_.bytes_max) return;
  const std::vector<const Frame*> frames = std::exchange(frames_, {});
  const std::vector<const Place*> places = std::exchange(places_, {});
  const auto owner = std::exchange(place_ids_, {});
  const auto frame_owner = std::exchange(frame_ids_, {});
  steps_.clear();
  masks_.clear();
  bytes_ = 0;
  std::vector<std::int32_t> frame_ids(frames.size(), -1);
  frame_ids[0] = id_of(Frame());
  const std::function<std::int32_t(std::int32_t)> kept = [&](std::int32_t frame) {
    std::int32_t& id = frame_ids[index(frame)];
    if (id >= 0) return id;
    Frame moved = *frames[index(frame)];
    renumber(moved.returns, kept);
    return id = id_of(std::move(moved));
  };
  for (GrammarMatcher* matcher : matchers_) {
    if (matcher->place_ < 0) continue;
    Place place = *places[index(matcher->place_)];
    renumber(place.items, kept);
    matcher->place_ = id_of(std::move(place));
  }
}

GrammarMatcher::GrammarMatcher(Constraint& constraint)
    : constraint_(&constraint), place_(constraint.start()) {
  constraint_->matchers_.insert(this);
}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : constraint_(other.constraint_), place_(other.place_) {
  constraint_->matchers_.insert(this);
}

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  if (this == &other) return *this;
  constraint_->matchers_.erase(this);
  constraint_ = other.constraint_;
  place_ = other.place_;
  constraint_->matchers_.insert(this);
  return *this;
}

GrammarMatcher::~GrammarMatcher() { constraint_->matchers_.erase(this); }

bool GrammarMatcher::accept(TokenId token) {
  if (constraint_->vocabulary_.is_end(token)) {
    if (!is_complete()) return false;
    place_ = ended;
    return true;
  }
  const std::string_view bytes = constraint_->vocabulary_.bytes(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  constraint_->collect();
  constraint_->work_ = 0;
  const std::int32_t next = constraint_->step(place_, bytes);
  if (next < 0) return false;
  place_ = next;
  return true;
}

std::span<const std::uint32_t> GrammarMatcher::mask() {
  constraint_->collect();
  return constraint_->mask(place_);
}

bool GrammarMatcher::is_complete() const {
  return place_ >= 0 && constraint_->places_[Constraint::index(place_)]->accepts;
}

std::string GrammarMatcher::forced_bytes(std::size_t bytes_max) {
  constraint_->collect();
  constraint_->work_ = 0;
  std::string bytes;
  std::int32_t place = place_;
  while (bytes.size() < bytes_max && place >= 0 &&
         !constraint_->places_[Constraint::index(place)]->accepts) {
    int count = 0;
    std::uint8_t only = 0;
    for (int byte = 0; byte < 256 && count < 2; ++byte) {
      if (constraint_->step(place, static_cast<std::uint8_t>(byte)) < 0) continue;
      ++count;
      only = static_cast<std::uint8_t>(byte);
    }
    if (count != 1) break;
    bytes += static_cast<char>(only);
    place = constraint_->step(place, only);
  }
  return bytes;
}

}  // namespace hyb
