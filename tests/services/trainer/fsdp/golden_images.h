// The golden models that see images (tests/parity/vision_golden.py), and their rows as a trainer has them.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_FSDP_GOLDEN_IMAGES_H_
#define TANDEM_TESTS_SERVICES_TRAINER_FSDP_GOLDEN_IMAGES_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/io/read_file.h"
#include "common/model/images/image_preparer.h"
#include "common/model/images/pixel_cache.h"
#include "common/model/model_spec.h"
#include "services/trainer/data/batch_images.h"
#include "services/trainer/data/micro_batch.h"
#include "tests/support/vision_golden.h"

namespace tandem::trainer {

struct GoldenImages {
  explicit GoldenImages(const std::string& name)
      : path(testing::VisionGolden(name)),
        golden(io::ReadJsonFile(path + "/golden.json").value()),
        spec(model::ParseModelSpec(io::ReadJsonFile(path + "/config.json").value(), path).value()),
        preparer(model::ImagePreparer::Load(path, *spec.vision).value()),
        pixels(preparer) {}

  // The rows as a rank has them: with files of its own.
  TrainingBatch Batch() {
    TrainingBatch batch;
    batch.images = std::make_shared<BatchImages>(pixels, *spec.vision);
    for (const nlohmann::json& row : golden["rows"]) {
      Sequence& sequence = batch.sequences.emplace_back(MakeScoredSequence(row["ids"], 1.0));
      std::vector<int64_t> images;
      for (const std::string file : row["images"]) {
        images.push_back(batch.images->Add(io::ReadFile(path + "/" + file).value()));
      }
      AddImages(std::move(images), *batch.images, sequence);
    }
    return batch;
  }

  // The sequences that a rank computes.
  static PackedBatch Part(const TrainingBatch& batch, int rank, int ranks) {
    std::vector<int64_t> indices;
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      if (static_cast<int>(i) % ranks == rank) indices.push_back(static_cast<int64_t>(i));
    }
    return PackMicroBatch(batch, indices, std::vector<double>(batch.sequences.size(), 1.0)).packed;
  }

  const std::string path;
  const nlohmann::json golden;
  model::ModelSpec spec;
  const model::ImagePreparer preparer;
  model::PixelCache pixels;
};

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_FSDP_GOLDEN_IMAGES_H_
