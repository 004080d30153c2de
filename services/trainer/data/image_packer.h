// ImagePacker: adds the images of packed sequences to a PackedBatch, with the positions of all tokens
// by time, height and width.
//
//   ImagePacker packer(*batch.images);
//   for (const Sequence* sequence : packed) packer.Add(*sequence, sequence->num_input_tokens());
//   std::move(packer).MoveTo(batch.images, packed_batch);
#ifndef TANDEM_SERVICES_TRAINER_DATA_IMAGE_PACKER_H_
#define TANDEM_SERVICES_TRAINER_DATA_IMAGE_PACKER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/trainer/data/batch_images.h"
#include "services/trainer/data/packed_batch.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

class ImagePacker {
 public:
  explicit ImagePacker(BatchImages& images) : images_(images) {}

  // Adds the sequence's first `num_tokens` tokens. Throws like BatchImages::GridOf(), and c10::Error
  // if the placeholders do not fit the images, which validated samples' do.
  void Add(const Sequence& sequence, int64_t num_tokens);

  // Sets positions, image_rows, image_indices and images. `images`: those of the constructor.
  void MoveTo(const std::shared_ptr<BatchImages>& images, PackedBatch& packed) &&;

 private:
  // The first row of the image among those of the batch, which it joins if it is new.
  int64_t FirstRowOf(int64_t image);

  BatchImages& images_;
  std::array<std::vector<int64_t>, 3> positions_;
  std::vector<int64_t> rows_;     // of each token; -1: none
  std::vector<int64_t> indices_;  // of the distinct images, in order
  absl::flat_hash_map<int64_t, int64_t> first_row_of_;
  int64_t num_rows_ = 0;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_DATA_IMAGE_PACKER_H_
