#include "services/rollout/images/image_row_cache.h"

namespace tandem::rollout {
namespace {

int64_t BytesOf(const at::Tensor& rows) { return static_cast<int64_t>(rows.nbytes()); }

}  // namespace

const at::Tensor* ImageRowCache::Use(const std::string& digest, bool is_new_run) {
  const auto found = places_.find(digest);
  if (found == places_.end()) return nullptr;
  found->second->step = step_;
  if (is_new_run) {
    ++num_queries_;
    if (std::exchange(found->second->is_read, true)) ++num_hits_;
  }
  entries_.splice(entries_.end(), entries_, found->second);
  return &found->second->rows;
}

bool ImageRowCache::HasRoomFor(int64_t bytes, int64_t promised) const {
  int64_t held = promised;  // by this step
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->step == step_; ++entry) {
    held += BytesOf(entry->rows);
  }
  return held == 0 || held + bytes <= max_bytes_;
}

void ImageRowCache::Put(const std::string& digest, at::Tensor rows) {
  const int64_t bytes = BytesOf(rows);
  while (!entries_.empty() && entries_.front().step != step_ && num_bytes_ + bytes > max_bytes_) {
    num_bytes_ -= BytesOf(entries_.front().rows);
    ++num_evicted_;
    places_.erase(entries_.front().digest);
    entries_.pop_front();
  }
  num_bytes_ += bytes;
  places_[digest] = entries_.insert(entries_.end(), {digest, std::move(rows), step_});
}

void ImageRowCache::Clear() {
  places_.clear();
  entries_.clear();
  num_bytes_ = 0;
}

}  // namespace tandem::rollout
