// The images of a chat request: parts of its messages with data URLs, or with URLs that are fetched.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_IMAGES_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_IMAGES_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/worker_pool.h"
#include "common/images/chat/chat_images.h"
#include "common/images/processor/image_form.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/images/request_images.h"

namespace tandem::rollout::openai {

// As much as a body may hold, in which images come as data URLs.
inline constexpr int64_t kMaxChatImageBytes = int64_t{16} << 20;

// How the model takes images.
struct ImageReading {
  int32_t placeholder_id = -1;  // -1: it takes none
  std::string written;          // what a template writes for an image; empty: the placeholder
  // The tokens that stand for an image.
  std::function<absl::StatusOr<images::PlaceholderIds>()> find_placeholders;
  // Decodes a file and returns its placeholders; `place` begins errors.
  std::function<absl::StatusOr<images::PlaceholderGrid>(
      const ImageFile& file, const std::string& place, images::ImageForm form)>
      grid_of;
  // Fetches an image by its http or https URL, in any thread, and ends soon after `is_moot` is true; null:
  // none is fetched.
  std::function<absl::StatusOr<std::string>(const std::string& url,
                                            const std::function<bool()>& is_moot)>
      fetch;
  http::WorkerPool* fetch_pool = nullptr;  // helps to fetch; null without `fetch`

  bool enabled() const { return placeholder_id >= 0; }
};

// Images in the order in which a chat template writes their placeholders.
struct ReadImages {
  std::vector<images::ChatImage> found;
  std::vector<ImageFile> files;
  std::vector<images::PlaceholderGrid> grids;
  images::PlaceholderIds placeholders;
};

// Reads the images of `messages`, those with URLs several at a time, and decodes them. INVALID_ARGUMENT
// names the first part at fault: one whose source is no data URL and not fetched (no file of the server is
// read), a file that cannot be had or decoded, a text that contains the placeholder, images of more than
// kMaxChatImageBytes together. Empty for a model that takes none. CANCELLED and other errors that are not
// the request's pass through.
absl::StatusOr<ReadImages> ReadChatImages(const nlohmann::ordered_json& messages,
                                          const ImageReading& reading,
                                          const tokenizer::Tokenizer& tokenizer);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_CHAT_IMAGES_H_
