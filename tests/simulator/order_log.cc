#include "tests/simulator/order_log.h"

#include <algorithm>

namespace tandem::testing {
namespace {

bool IsOrdered(const OrderLog::Access& earlier, const OrderLog::Access& access,
               const Clock& clock) {
  return earlier.stream < 0 || earlier.stream == access.stream ||
         earlier.time <= TimeOf(clock, earlier.stream);
}

}  // namespace

void Join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void OrderLog::Cut(uintptr_t at) {
  auto next = segments_.upper_bound(at);
  if (next == segments_.begin()) return;
  auto& [begin, segment] = *std::prev(next);
  if (begin == at || segment.end <= at) return;
  Segment right = segment;
  segment.end = at;
  segments_.emplace(at, std::move(right));
}

std::optional<OrderLog::Conflict> OrderLog::Read(const Access& access, const Clock& clock,
                                                 Bytes bytes) {
  std::optional<Conflict> conflict;
  Cut(bytes.begin);
  Cut(bytes.end);
  uintptr_t at = bytes.begin;
  auto it = segments_.lower_bound(bytes.begin);
  while (at < bytes.end) {
    if (it == segments_.end() || it->first > at) {
      // Nothing is known of the gap.
      const uintptr_t end = it == segments_.end() ? bytes.end : std::min(bytes.end, it->first);
      it = segments_.emplace(at, Segment{end, {}, {}}).first;
    }
    Segment& segment = it->second;
    if (!conflict.has_value() && !IsOrdered(segment.write, access, clock)) {
      conflict = Conflict{segment.write, true, {it->first, segment.end}};
    }
    const auto known =
        std::find_if(segment.reads.begin(), segment.reads.end(),
                     [&](const Access& read) { return read.stream == access.stream; });
    if (known == segment.reads.end()) {
      segment.reads.push_back(access);
    } else {
      *known = access;
    }
    at = segment.end;
    ++it;
  }
  return conflict;
}

std::optional<OrderLog::Conflict> OrderLog::Write(const Access& access, const Clock& clock,
                                                  Bytes bytes) {
  std::optional<Conflict> conflict;
  Cut(bytes.begin);
  Cut(bytes.end);
  auto it = segments_.lower_bound(bytes.begin);
  while (it != segments_.end() && it->first < bytes.end) {
    const Segment& segment = it->second;
    if (!conflict.has_value() && !IsOrdered(segment.write, access, clock)) {
      conflict = Conflict{segment.write, true, {it->first, segment.end}};
    }
    for (const Access& read : segment.reads) {
      if (!conflict.has_value() && !IsOrdered(read, access, clock)) {
        conflict = Conflict{read, false, {it->first, segment.end}};
      }
    }
    it = segments_.erase(it);
  }
  segments_.emplace(bytes.begin, Segment{bytes.end, access, {}});
  return conflict;
}

}  // namespace tandem::testing
