// ImageEncoder: makes the rows of images that the scheduler asks for, within a step's share of patches,
// and keeps them.
//
//   scheduler.SetNumReady([&](const Sequence& sequence) { return encoder.NumReady(sequence, images); });
//   encoder.BeginStep();
//   const StepPlan& plan = scheduler.Plan();
//   item.image_rows = encoder.RowsOf(images, first_token, end);
//   encoder.EncodeWanted(params, fail);
#ifndef TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ENCODER_H_
#define TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ENCODER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/gpu_memory.h"
#include "common/model/images/pixel_cache.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"
#include "services/rollout/images/image_row_cache.h"
#include "services/rollout/images/request_images.h"
#include "services/rollout/scheduler/sequence.h"

namespace tandem::rollout {

struct ImageEncoderOptions {
  int64_t max_row_bytes = model::kImageRowBytes;
  // Patches that a step encodes: decoding waits for no more, or for one image. 0: as many as the step
  // may have tokens.
  int64_t max_patches_per_step = 0;
  // Patches of one pass of the tower, or those of one image; 0: what the CPU's caches hold.
  int64_t max_patches_per_pass = 0;
  // Blocks until a GPU has made the rows that were queued, and throws its errors: weights may be written
  // once EncodeWanted() returns. Null on the CPU.
  std::function<void()> await_device;
};

// Counters since the start, but for num_waiting and row_bytes.
struct ImageEncoderStats {
  int64_t num_images = 0;  // encoded
  int64_t num_patches = 0;
  double seconds = 0;  // that decoding waited for them
  // Prompts' images whose rows were read, and those of them that an earlier prompt had read.
  int64_t num_row_queries = 0;
  int64_t num_row_hits = 0;
  int64_t num_rows_evicted = 0;  // images whose rows made room for others'
  int64_t num_waiting = 0;       // images that the last step asked for and did not encode
  int64_t row_bytes = 0;         // kept now
};

// One thread, the engine's, which on a GPU has entered the forward passes' stream
// (ModelRunner::Enter()). The arguments of the constructor must outlive the encoder.
class ImageEncoder {
 public:
  ImageEncoder(const model::Transformer& model, model::PixelCache& pixels,
               const ImageEncoderOptions& options)
      : model_(model), pixels_(pixels), options_(options), rows_(options.max_row_bytes) {}

  // Forgets what was asked for.
  void BeginStep();

  // Returns the number of leading tokens of `sequence`, whose prompt has these images, that may be
  // computed: those before the first image without rows that it has yet to compute. This image and
  // those behind it are wanted from now on, up to the step's share.
  int64_t NumReady(const Sequence& sequence, const RequestImages& images);

  // The rows of the placeholders among the tokens [first, end), which NumReady() found ready in this
  // step; undefined if there are none.
  at::Tensor RowsOf(const RequestImages& images, int64_t first, int64_t end);

  // Encodes what was asked for since BeginStep(), in that order, up to the step's share and at least
  // one image, unless the rows of this step's images leave no room. Small images share a pass of the
  // tower: an image's rows depend on that image alone. Calls `fail` for the sequence of an image that
  // cannot be encoded. Returns whether it encoded or failed any.
  bool EncodeWanted(const model::ParameterProvider& params,
                    absl::FunctionRef<void(const Sequence&, absl::Status)> fail);

  // The rows were made with other weights, or their memory is needed: those asked for next are made
  // again.
  void Clear() { rows_.Clear(); }

  ImageEncoderStats stats() const;

 private:
  struct Wanted {
    const Sequence* sequence;
    const RequestImage* image;
  };

  // An image of this step, with its pixels.
  struct Prepared {
    Wanted wanted;
    std::shared_ptr<const model::PreparedImage> image;
  };
  using Fail = absl::FunctionRef<void(const Sequence&, absl::Status)>;

  // The wanted images of this step, taken from the front of `wanted_`.
  std::vector<Wanted> TakeShare(int64_t element_bytes);
  // Encodes them in one pass and keeps their rows. Images that fail together are tried one by one.
  void Encode(const model::ParameterProvider& params, absl::Span<const Prepared> images, Fail fail);

  const model::Transformer& model_;
  model::PixelCache& pixels_;
  const ImageEncoderOptions options_;
  ImageRowCache rows_;
  std::vector<Wanted> wanted_;
  int64_t wanted_patches_ = 0;
  ImageEncoderStats stats_;  // without those of rows_
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ENCODER_H_
