#include "services/rollout/images/pixel_cache.h"

#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

int64_t BytesOf(const model::PreparedImage& image) {
  return static_cast<int64_t>(image.pixel_values.size() * sizeof(float));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const model::PreparedImage>> PixelCache::Get(
    const std::string& digest, absl::string_view file, const std::string& place) {
  {
    absl::MutexLock lock(&mu_);
    if (const auto found = places_.find(digest); found != places_.end()) {
      entries_.splice(entries_.end(), entries_, found->second);
      return found->second->second;
    }
  }
  ASSIGN_OR_RETURN(model::PreparedImage prepared, preparer_.Prepare(file, place));
  const auto image = std::make_shared<const model::PreparedImage>(std::move(prepared));
  const int64_t bytes = BytesOf(*image);
  absl::MutexLock lock(&mu_);
  if (bytes > max_bytes_ || places_.contains(digest)) return image;
  while (num_bytes_ + bytes > max_bytes_) {
    num_bytes_ -= BytesOf(*entries_.front().second);
    places_.erase(entries_.front().first);
    entries_.pop_front();
  }
  num_bytes_ += bytes;
  places_[digest] = entries_.insert(entries_.end(), {digest, image});
  return image;
}

int64_t PixelCache::num_bytes() const {
  absl::MutexLock lock(&mu_);
  return num_bytes_;
}

}  // namespace tandem::rollout
