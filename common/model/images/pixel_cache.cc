#include "common/model/images/pixel_cache.h"

#include "common/status/exceptions.h"

namespace tandem::model {
namespace {

int64_t BytesOf(const PreparedImage& image) {
  return static_cast<int64_t>(image.pixel_values.size() * sizeof(float));
}

}  // namespace

PixelCache::Image PixelCache::Find(const std::string& digest) {
  const auto found = places_.find(digest);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, found->second);
  return found->second->second;
}

void PixelCache::Keep(const std::string& digest, const Image& image) {
  const int64_t bytes = BytesOf(*image);
  if (bytes > max_bytes_ || places_.contains(digest)) return;
  while (stats_.num_bytes + bytes > max_bytes_) {
    stats_.num_bytes -= BytesOf(*entries_.front().second);
    ++stats_.num_evicted;
    places_.erase(entries_.front().first);
    entries_.pop_front();
  }
  stats_.num_bytes += bytes;
  places_[digest] = entries_.insert(entries_.end(), {digest, image});
}

absl::StatusOr<std::shared_ptr<const PreparedImage>> PixelCache::Get(const std::string& key,
                                                                     absl::string_view file,
                                                                     const std::string& place,
                                                                     Turn turn,
                                                                     images::ImageForm form) {
  {
    absl::MutexLock lock(&mu_);
    const auto may_decode = [this, turn] {
      mu_.AssertHeld();
      return turn == Turn::kTake || num_decoding_ < kMaxDecoding;
    };
    ++stats_.num_waiting;
    // Bounded: each of those before it decodes one image within the limits.
    mu_.Await(absl::Condition(&may_decode));
    if (Image image = Find(key); image != nullptr) {
      --stats_.num_waiting;
      ++stats_.num_hits;
      return image;
    }
    ++num_decoding_;
    ++stats_.num_decoded;
  }
  absl::StatusOr<PreparedImage> prepared =
      Catch([&] { return preparer_.Prepare(file, place, form); });
  absl::MutexLock lock(&mu_);
  --num_decoding_;
  --stats_.num_waiting;
  if (!prepared.ok()) return prepared.status();
  const auto image = std::make_shared<const PreparedImage>(*std::move(prepared));
  Keep(key, image);
  return image;
}

PixelCacheStats PixelCache::stats() const {
  absl::MutexLock lock(&mu_);
  return stats_;
}

}  // namespace tandem::model
