// ImageRowCache: the rows that images became (model::EncodeImages()), by the digest of their files.
//
//   ImageRowCache cache(max_bytes);
//   cache.BeginStep();
//   if (cache.HasRoomFor(bytes)) cache.Put(digest, rows);
//   const at::Tensor* rows = cache.Use(digest);
#ifndef TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ROW_CACHE_H_
#define TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ROW_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace tandem::rollout {

// An entry that the current step has used or put stays until the next step, so that a sequence which is
// being computed finds its image there until its run is over: two images that do not fit together
// take turns, and neither is made for nothing. One thread.
class ImageRowCache {
 public:
  explicit ImageRowCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // From now on entries of earlier steps may make room.
  void BeginStep() { ++step_; }

  bool Contains(const std::string& digest) const { return places_.contains(digest); }
  // The rows, or null. Valid until the next Put() or Clear(). is_new_run: a prompt starts to read them,
  // which counts as a query.
  const at::Tensor* Use(const std::string& digest, bool is_new_run = false);
  // Whether Put() of so many bytes keeps within max_bytes, or the cache would hold nothing else, after
  // Put() of `promised` bytes of others.
  bool HasRoomFor(int64_t bytes, int64_t promised = 0) const;
  // Gives up what earlier steps used last, as far as needed. Call if HasRoomFor() says so, and the digest
  // is not there.
  void Put(const std::string& digest, at::Tensor rows);
  void Clear();

  int64_t num_bytes() const { return num_bytes_; }
  // Since the start. A hit is a query of rows that an earlier one has read.
  int64_t num_queries() const { return num_queries_; }
  int64_t num_hits() const { return num_hits_; }
  int64_t num_evicted() const { return num_evicted_; }  // for the rows of others

 private:
  struct Entry {
    std::string digest;
    at::Tensor rows;
    int64_t step = 0;      // that used it last
    bool is_read = false;  // by a query
  };
  using Entries = std::list<Entry>;  // least recently used first

  const int64_t max_bytes_;
  Entries entries_;
  absl::flat_hash_map<std::string, Entries::iterator> places_;
  int64_t num_bytes_ = 0;
  int64_t num_queries_ = 0;
  int64_t num_hits_ = 0;
  int64_t num_evicted_ = 0;
  int64_t step_ = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ROW_CACHE_H_
