// PixelCache: prepared images, by the digest of their files. A picture that many requests, or several
// passes over a batch, show is decoded once, and pixels that were given up are made again from the
// file. Trainer ranks and rollouts have one each.
//
//   PixelCache pixels(preparer);
//   ASSIGN_OR_RETURN(const auto image, pixels.Get(digest, file, "images[0]"));
#ifndef TANDEM_COMMON_MODEL_IMAGES_PIXEL_CACHE_H_
#define TANDEM_COMMON_MODEL_IMAGES_PIXEL_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/model/images/image_preparer.h"

namespace tandem::model {

// Since the start, but for num_waiting.
struct PixelCacheStats {
  int64_t num_hits = 0;
  int64_t num_decoded = 0;  // not there: decoded, or found to be no picture
  int64_t num_evicted = 0;  // given up for the pixels of others
  int64_t num_waiting = 0;  // calls that wait for their turn, or decode
  int64_t num_bytes = 0;    // kept now
};

// Thread-safe.
class PixelCache {
 public:
  // Pixels that are kept, the least recently used given up first. One image more lives while it is used.
  // An image of 224 x 224 takes 1.2 MB.
  static constexpr int64_t kDefaultBytes = int64_t{256} << 20;

  explicit PixelCache(ImagePreparer preparer, int64_t max_bytes = kDefaultBytes)
      : preparer_(std::move(preparer)), max_bytes_(max_bytes) {}

  // Images that are decoded at once, for callers that wait for their turn: decoding the largest takes
  // up to 1 GB.
  static constexpr int kMaxDecoding = 2;

  // What the caller does while as many images are decoded.
  enum class Turn { kWait, kTake };

  // The image of `file` in `form`; `key`: their ImageKey(), of forms but kAlone not the file's digest.
  // Decodes on the caller's thread if it is not there.
  // Errors: those of ImagePreparer::Prepare(), which begin with `place`.
  absl::StatusOr<std::shared_ptr<const PreparedImage>> Get(
      const std::string& key, absl::string_view file, const std::string& place,
      Turn turn = Turn::kWait, images::ImageForm form = images::ImageForm::kAlone);

  PixelCacheStats stats() const;

 private:
  using Image = std::shared_ptr<const PreparedImage>;
  using Entries = std::list<std::pair<std::string, Image>>;  // least recently used first

  // Null if it is not there.
  Image Find(const std::string& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep(const std::string& digest, const Image& image) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ImagePreparer preparer_;
  const int64_t max_bytes_;
  mutable absl::Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Entries::iterator> places_ ABSL_GUARDED_BY(mu_);  // by digest
  PixelCacheStats stats_ ABSL_GUARDED_BY(mu_);
  int num_decoding_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGES_PIXEL_CACHE_H_
