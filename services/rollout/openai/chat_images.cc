#include "services/rollout/openai/chat_images.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/images/fetch/fetch_together.h"
#include "common/images/image_source.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {
namespace {

// Why an image was not fetched: mostly for the client, who named the URL.
absl::Status FetchError(const std::string& place, const absl::Status& status) {
  if (absl::IsCancelled(status)) return status;
  return rpc::InvalidField(place, status.message());
}

absl::StatusOr<ImageFile> FileOf(const images::ChatImage& image, const ImageReading& reading,
                                 const std::function<bool()>& is_moot) {
  const std::string& source = image.source;
  if (images::IsWebUrl(source)) {
    if (reading.fetch == nullptr) {
      return rpc::InvalidField(
          image.place,
          "images are not fetched over the network; send a data URL, data:image/png;base64,..., or "
          "start the rollout with --allow-image-urls");
    }
    absl::StatusOr<std::string> bytes = reading.fetch(source, is_moot);
    if (!bytes.ok()) return FetchError(image.place, bytes.status());
    return std::make_shared<const std::string>(*std::move(bytes));
  }
  if (!absl::StartsWithIgnoreCase(source, "data:")) {
    return rpc::InvalidField(
        image.place, "expected a data URL, data:image/png;base64,..., found another source");
  }
  absl::StatusOr<std::string> bytes = images::DecodeDataUrl(source);
  if (!bytes.ok()) return rpc::InvalidField(image.place, bytes.status().message());
  return std::make_shared<const std::string>(*std::move(bytes));
}

// The files of a chat, as they come in. Together they hold no more than kMaxChatImageBytes. Thread-safe.
class ChatFiles {
 public:
  explicit ChatFiles(const std::vector<images::ChatImage>& found)
      : found_(found), files_(found.size(), ImageFile()), end_(found.size()) {}

  void Set(size_t i, absl::StatusOr<ImageFile> file) {
    absl::MutexLock lock(&mu_);
    if (i > end_) return;
    files_[i] = std::move(file);
    if (files_[i].ok()) num_bytes_ += SizeOf(i);
    if (!files_[i].ok() || num_bytes_ > kMaxChatImageBytes) Cut();
  }

  // Whether an earlier part fails the chat.
  bool IsMoot(size_t i) const {
    absl::MutexLock lock(&mu_);
    return i > end_;
  }
  bool has_failed() const {
    absl::MutexLock lock(&mu_);
    return end_ < files_.size();
  }

  // Once those before the first that fails are set: each file in order, until an error.
  std::vector<absl::StatusOr<ImageFile>> Take() {
    absl::MutexLock lock(&mu_);
    return std::move(files_);
  }

 private:
  int64_t SizeOf(size_t i) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return *files_[i] == nullptr ? 0 : static_cast<int64_t>((*files_[i])->size());
  }

  // Finds the first that fails among those that are here, and drops those behind it. Each time one of
  // those under way when the first failed comes in, at most: no other is begun.
  void Cut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    num_bytes_ = 0;
    for (size_t i = 0; i < end_; ++i) {
      if (files_[i].ok()) {
        const int64_t num_bytes = num_bytes_ + SizeOf(i);
        if (num_bytes <= kMaxChatImageBytes) {
          num_bytes_ = num_bytes;
          continue;
        }
        files_[i] =
            rpc::InvalidField(found_[i].place, absl::StrCat("expected at most ", kMaxChatImageBytes,
                                                            " bytes of images in a chat, found ",
                                                            num_bytes, " and more"));
      }
      end_ = i;
    }
    for (size_t i = end_ + 1; i < files_.size(); ++i) files_[i] = ImageFile();
  }

  const std::vector<images::ChatImage>& found_;
  mutable absl::Mutex mu_;
  std::vector<absl::StatusOr<ImageFile>> files_ ABSL_GUARDED_BY(mu_);  // null: not here
  int64_t num_bytes_ ABSL_GUARDED_BY(mu_) = 0;                         // of those before end_
  size_t end_ ABSL_GUARDED_BY(mu_);  // the first that fails; files_.size(): none
};

// The files of the images, in order; behind one that failed there may be none.
std::vector<absl::StatusOr<ImageFile>> ReadFiles(const std::vector<images::ChatImage>& found,
                                                 const ImageReading& reading) {
  ChatFiles files(found);
  const auto read = [&](size_t i) {
    files.Set(i, FileOf(found[i], reading, [&files, i] { return files.IsMoot(i); }));
    return !files.has_failed();
  };
  const bool any_is_fetched =
      reading.fetch != nullptr &&
      std::any_of(found.begin(), found.end(),
                  [](const images::ChatImage& image) { return images::IsWebUrl(image.source); });
  if (any_is_fetched) {
    images::FetchTogether(found.size(), *reading.fetch_pool, read);
  } else {
    for (size_t i = 0; i < found.size() && read(i);) ++i;
  }
  return files.Take();
}

}  // namespace

absl::StatusOr<ReadImages> ReadChatImages(const nlohmann::ordered_json& messages,
                                          const ImageReading& reading,
                                          const tokenizer::Tokenizer& tokenizer) {
  ReadImages out;
  if (!reading.enabled()) return out;
  const std::string* placeholder = tokenizer.IdToToken(reading.placeholder_id);
  if (!reading.written.empty()) placeholder = &reading.written;
  ASSIGN_OR_RETURN(out.found, images::FindChatImages(messages, /*listed=*/nullptr,
                                                     placeholder == nullptr ? "" : *placeholder));
  out.placeholders.placeholder = reading.placeholder_id;
  if (out.found.empty()) return out;
  ASSIGN_OR_RETURN(out.placeholders, reading.find_placeholders());
  const images::ImageForm form = images::FormOfEach(out.found.size());
  std::vector<absl::StatusOr<ImageFile>> files = ReadFiles(out.found, reading);
  for (size_t i = 0; i < files.size(); ++i) {
    ASSIGN_OR_RETURN(ImageFile file, std::move(files[i]));
    ASSIGN_OR_RETURN(out.grids.emplace_back(), reading.grid_of(file, out.found[i].place, form));
    out.files.push_back(std::move(file));
  }
  return out;
}

}  // namespace tandem::rollout::openai
