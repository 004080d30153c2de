// ImageStore: the images that a run does not find in files of its own, kept in its folder: those that it
// fetched, and those that its episodes brought along.
//
//   run_dir/images/DIGEST             the file; DIGEST is its SHA-256 in hexadecimal digits
//   run_dir/images/urls/DIGEST.json   {"url", "sha256"}; DIGEST is the URL's
//
//   ImageStore store(config.run_dir() + "/images");
//   ASSIGN_OR_RETURN(const PromptImage image, store.Keep(file));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_STORE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_STORE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/images/fetch/image_fetcher.h"
#include "tools/tandem/driver/prompt_image.h"

namespace tandem::driver {

// Thread-safe. Files are written atomically, by what they contain, so that several processes may share a
// folder, and samples of any run in it stay what they are.
class ImageStore {
 public:
  // The folder is created with the first image.
  explicit ImageStore(std::string folder);

  // Keeps a file, unless it is there, and returns where it is. Errors of writing a file.
  absl::StatusOr<PromptImage> Keep(absl::string_view file) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;  // absolute
};

// Images by URL. Thread-safe. A URL is fetched once for a folder: a run that starts again, or resumes,
// sees the same picture whatever the server has by then.
class UrlImages {
 public:
  // `interrupted`, which may be null, ends what is being fetched.
  UrlImages(ImageStore store, images::ImageFetcher fetcher, std::function<bool()> interrupted)
      : store_(std::move(store)),
        fetcher_(std::move(fetcher)),
        interrupted_(std::move(interrupted)) {}

  // Returns where the image that `url` names is, which is fetched first if need be. Errors:
  // images::ImageFetcher::Fetch(); INVALID_ARGUMENT for what is no image; those of ImageStore::Keep().
  absl::StatusOr<PromptImage> Get(const std::string& url) const;

  // Fetches several at a time, for Get(). After the first that fails no other is begun, and Get() returns
  // its error, once. Returns whether none failed.
  bool Prefetch(absl::Span<const std::string> urls) const;

 private:
  absl::StatusOr<PromptImage> Fetch(const std::string& url, const std::string& record) const;

  const ImageStore store_;
  const images::ImageFetcher fetcher_;
  const std::function<bool()> interrupted_;
  mutable absl::Mutex mu_;
  mutable std::map<std::string, absl::Status> failures_
      ABSL_GUARDED_BY(mu_);  // by URL, of Prefetch()
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_STORE_H_
