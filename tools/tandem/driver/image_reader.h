// ImageReader: finds and reads the images of data rows, and gives each as many placeholders as the
// model sees of it.
//
//   ASSIGN_OR_RETURN(const auto reader, ImageReader::Create(model_folder, tokenizer.get()));
//   ASSIGN_OR_RETURN(const ImageReader::Images images, reader->Read(messages, &listed, "data"));
//   ASSIGN_OR_RETURN(ids, images.Expand(ids));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_READER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_READER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/images/chat/chat_images.h"
#include "common/model/images/image_preparer.h"
#include "common/model/model_spec.h"
#include "common/tokenizer/tokenizer.h"
#include "tools/tandem/driver/image_store.h"
#include "tools/tandem/driver/prompt_image.h"

namespace tandem::driver {

// Immutable.
class ImageReader {
 public:
  // Null for a model without a vision tower. `tokenizer`: null if the folder has none; then rows give
  // token ids. `urls` gets images by URL, and outlives the reader; null refuses them. Errors of
  // model::ParseModelSpec() and model::ImagePreparer::Load(); FAILED_PRECONDITION if the tokenizer does
  // not have the model's placeholder, or the tokens beside it.
  static absl::StatusOr<std::unique_ptr<ImageReader>> Create(const std::string& model_folder,
                                                             const tokenizer::Tokenizer* tokenizer,
                                                             const UrlImages* urls = nullptr);

  // The images of a row, in order.
  class Images {
   public:
    const std::vector<PromptImage>& files() const { return files_; }

    // Returns a text with images, as a chat template wrote it, as it becomes tokens.
    std::string TextForTokens(const std::string& text) const {
      return images::TextForTokens(placeholders_, text);
    }
    // Returns `ids` with one placeholder for each image replaced by as many as the model sees of it.
    // INVALID_ARGUMENT names the image that the chat template left out.
    absl::StatusOr<std::vector<int32_t>> Expand(absl::Span<const int32_t> ids) const;
    // The same for a part of a sequence whose earlier parts have the first `*next` images; counts on
    // in `*next`. INVALID_ARGUMENT for a placeholder without an image.
    absl::StatusOr<std::vector<int32_t>> ExpandPart(absl::Span<const int32_t> ids,
                                                    size_t* next) const;

    // Adds images that follow in the conversation.
    void Append(const Images& later);

   private:
    friend class ImageReader;
    std::vector<PromptImage> files_;
    std::vector<images::ChatImage> found_;
    std::vector<images::PlaceholderGrid> grids_;
    images::PlaceholderIds placeholders_;
  };

  // Stands for an image in a text; empty without a tokenizer.
  const std::string& placeholder() const { return placeholder_; }

  // Gets images by URL; null if they are refused.
  const UrlImages* urls() const { return urls_; }

  // Reads the images of `messages` (images::FindChatImages()) and of `listed`, the row's list, or null;
  // relative paths are those of `folder`. INVALID_ARGUMENT names the part: no picture, damaged, or
  // together more than kMaxRowBytes.
  absl::StatusOr<Images> Read(const nlohmann::ordered_json& messages,
                              const nlohmann::ordered_json* listed,
                              const std::string& folder) const;
  // The same for token ids whose placeholders are expanded already: INVALID_ARGUMENT if the images do
  // not fit them.
  absl::StatusOr<Images> ReadFor(absl::Span<const uint32_t> ids,
                                 const nlohmann::ordered_json& listed,
                                 const std::string& folder) const;

  // Reads images that are at hand, those that an environment shows, and keeps them in `store`.
  // INVALID_ARGUMENT names the image: no picture, or damaged. `num_before`: images that the episode has
  // shown before.
  absl::StatusOr<Images> ReadShown(const std::vector<ImageFile>& files, size_t num_before,
                                   const ImageStore& store) const;
  // The images of ids whose placeholders are expanded already, `files` in their order.
  Images Expanded(absl::Span<const uint32_t> ids, const std::vector<PromptImage>& files) const;
  // INVALID_ARGUMENT unless the images fit the placeholders of the ids, expanded already.
  absl::Status CheckFit(absl::Span<const uint32_t> ids, const Images& images) const;

  // A request has all images of its prompt, and a message has at most 16 MiB.
  static constexpr int64_t kMaxRowBytes = int64_t{15} << 20;

 private:
  ImageReader(model::ImagePreparer preparer, const model::VisionSpec& spec, std::string placeholder,
              const images::PlaceholderIds& placeholders, const UrlImages* urls)
      : preparer_(std::move(preparer)),
        spec_(spec),
        placeholder_(std::move(placeholder)),
        placeholders_(placeholders),
        urls_(urls) {}

  // Reads the files of `found` and the numbers of their placeholders in these forms.
  absl::StatusOr<Images> ReadFiles(std::vector<images::ChatImage> found,
                                   const std::vector<images::ImageForm>& forms,
                                   const std::string& folder) const;

  const model::ImagePreparer preparer_;
  const model::VisionSpec spec_;
  const std::string placeholder_;              // what a text has of it; empty without a tokenizer
  const images::PlaceholderIds placeholders_;  // likewise without the tokens beside them
  const UrlImages* const urls_;                // may be null
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_IMAGE_READER_H_
