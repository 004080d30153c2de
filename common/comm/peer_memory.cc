#include "common/comm/peer_memory.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr uint64_t kLentBytesMagic = 0x6c6e742e6d646e74;

}  // namespace

std::optional<LentBytes> PeerMemory::Lend(int to, const void* data, int64_t size_bytes) {
  if (size_bytes < kLeastLentBytes) return std::nullopt;
  const std::optional<ShareableRange> range = FindShareable(data, size_bytes);
  if (!range.has_value()) return std::nullopt;
  const uint64_t id = range->segment->id();
  if (const auto [at, is_new] = handed_.emplace(to, id);
      is_new && !links_.Hand(to, range->segment->file(), id)) {
    handed_.erase(at);
    return std::nullopt;
  }
  return LentBytes{kLentBytesMagic, id, range->offset, size_bytes};
}

absl::StatusOr<const std::byte*> PeerMemory::Borrow(int from, const LentBytes& lent,
                                                    int64_t size_bytes) {
  const std::string who = absl::StrCat("rank ", from, " lends memory");
  if (lent.magic != kLentBytesMagic || lent.size_bytes != size_bytes || lent.offset < 0) {
    return absl::InternalError(absl::StrCat(who, ": expected the location of ", size_bytes,
                                            " bytes, found an invalid one"));
  }
  auto mapped = mapped_.find({from, lent.segment});
  while (mapped == mapped_.end()) {
    // It was handed over before the message, if it was.
    ASSIGN_OR_RETURN(const auto handed, links_.TakeHanded(from));
    if (!handed.has_value()) {
      return absl::InternalError(
          absl::StrCat(who, ": segment ", lent.segment, " was not handed over"));
    }
    auto segment = MappedSegment::Map(handed->second);
    if (!segment.ok()) {
      return absl::Status(segment.status().code(), absl::StrCat(who, ": segment ", handed->first,
                                                                ": ", segment.status().message()));
    }
    const auto added = mapped_.insert_or_assign({from, handed->first}, *std::move(segment)).first;
    if (handed->first == lent.segment) mapped = added;
  }
  const int64_t whole = mapped->second->size_bytes();
  if (lent.offset > whole || size_bytes > whole - lent.offset) {
    return absl::InternalError(absl::StrCat(who, ": ", size_bytes, " bytes from byte ", lent.offset,
                                            " of segment ", lent.segment, ", which has ", whole));
  }
  return mapped->second->data() + lent.offset;
}

}  // namespace tandem::comm
