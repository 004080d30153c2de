// RandomPictures: pictures that no cache has seen, and prompts that show them.
//
//   ASSIGN_OR_RETURN(RandomPictures pictures, RandomPictures::Create(folder, spec, {1, 224}));
//   driver::Prompt prompt;
//   prompt.token_ids = randint.Draw(64);
//   pictures.AddTo(prompt);
#ifndef TANDEM_TOOLS_TANDEM_BENCH_RANDOM_PICTURES_H_
#define TANDEM_TOOLS_TANDEM_BENCH_RANDOM_PICTURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/images/chat/placeholders.h"
#include "common/model/model_spec.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/prompt_image.h"

namespace tandem::bench {

struct PictureOptions {
  int64_t per_prompt = 0;
  int64_t side = 224;  // pixels
};

class RandomPictures {
 public:
  // INVALID_ARGUMENT, a misuse, if the model sees no images; errors of the folder's processor.
  static absl::StatusOr<RandomPictures> Create(const std::string& folder,
                                               const model::ModelSpec& spec,
                                               const PictureOptions& options);

  // Tokens, placeholders among them and patches that the pictures add to a prompt.
  int64_t tokens_per_prompt() const {
    return options_.per_prompt * static_cast<int64_t>(tokens_.size());
  }
  int64_t rows_per_prompt() const { return options_.per_prompt * rows_; }
  int64_t patches_per_prompt() const { return options_.per_prompt * num_patches_; }

  // Puts the tokens of new pictures into the ids, one picture behind each of the first of them. Ids
  // that stand for images otherwise become 1, and so do those between lines of placeholders. The prompt
  // has at least as many ids as pictures.
  void AddTo(driver::Prompt& prompt);

 private:
  RandomPictures(const PictureOptions& options, const model::VisionSpec& spec,
                 const images::PlaceholderGrid& grid, int64_t num_patches);

  driver::PromptImage Draw();

  PictureOptions options_;
  std::vector<int32_t> tokens_;     // of one picture
  int64_t rows_;                    // likewise
  int64_t num_patches_;             // likewise
  std::vector<uint32_t> reserved_;  // ids that stand for images and videos; the first for images
  uint32_t seed_ = 1;
};

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_RANDOM_PICTURES_H_
