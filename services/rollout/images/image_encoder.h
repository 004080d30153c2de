// ImageEncoder: makes the rows of images that the scheduler asks for, a few each step, and keeps them.
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
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"
#include "services/rollout/images/image_row_cache.h"
#include "services/rollout/images/request_images.h"
#include "services/rollout/scheduler/sequence.h"

namespace tandem::rollout {

struct ImageEncoderOptions {
  // Rows that are kept. 4,096 rows of a width of 3,584 in bfloat16 take 29 MB.
  int64_t max_row_bytes = int64_t{256} << 20;
  // Patches that a step encodes: decoding waits for no more, or for one image. 0: as many as the step
  // may have tokens.
  int64_t max_patches_per_step = 0;
};

// One thread, the engine's. The arguments of the constructor must outlive the encoder.
class ImageEncoder {
 public:
  ImageEncoder(const model::Transformer& model, PixelCache& pixels,
               const ImageEncoderOptions& options)
      : model_(model), pixels_(pixels), options_(options), rows_(options.max_row_bytes) {}

  // Forgets what was asked for.
  void BeginStep();

  // Returns the number of leading tokens of `sequence`, whose prompt has these images, that may be
  // computed: those before the first image without rows that it has yet to compute, which is wanted
  // from now on.
  int64_t NumReady(const Sequence& sequence, const RequestImages& images);

  // The rows of the placeholders among the tokens [first, end), which NumReady() found ready in this
  // step; undefined if there are none.
  at::Tensor RowsOf(const RequestImages& images, int64_t first, int64_t end);

  // Encodes what was asked for since BeginStep(), in that order, up to the step's share and at least
  // one image, unless the rows of this step's images leave no room. Calls `fail` for the sequence of
  // an image that cannot be encoded. Returns whether it encoded or failed any.
  bool EncodeWanted(const model::ParameterProvider& params,
                    absl::FunctionRef<void(const Sequence&, absl::Status)> fail);

  // The rows were made with other weights, or their memory is needed: those asked for next are made
  // again.
  void Clear() { rows_.Clear(); }

  int64_t row_bytes() const { return rows_.num_bytes(); }
  // Images encoded since the start.
  int64_t num_encoded() const { return num_encoded_; }

 private:
  struct Wanted {
    const Sequence* sequence;
    const RequestImage* image;
  };

  absl::StatusOr<at::Tensor> Encode(const model::ParameterProvider& params,
                                    const RequestImage& image) const;

  const model::Transformer& model_;
  PixelCache& pixels_;
  const ImageEncoderOptions options_;
  ImageRowCache rows_;
  std::vector<Wanted> wanted_;
  int64_t num_encoded_ = 0;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_IMAGES_IMAGE_ENCODER_H_
