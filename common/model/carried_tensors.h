// The tensors besides the residual stream that a stage of a model makes and later stages read: keys and
// values that layers share, inputs that layers have of their own, and rows of images that layers add.
// Stage 0 is the embedding, stage i + 1 layer i (transformer.h).
//
//   for (const CarriedTensor& carried : CarriedTensorsOf(spec)) Hold(carried.maker, carried.readers);
#ifndef TANDEM_COMMON_MODEL_CARRIED_TENSORS_H_
#define TANDEM_COMMON_MODEL_CARRIED_TENSORS_H_

#include <vector>

#include "absl/status/status.h"
#include "common/model/model_spec.h"

namespace tandem::model {

struct CarriedTensor {
  enum class Kind {
    kKeysAndValues,  // of the maker's layer, for layers with its index as AttentionSpec::kv_layer
    kLayerInput,     // of the reader's layer (ModelSpec::layer_inputs)
    // Of a pass with images, what the reader adds behind its layer (VisionSpec::deepstack_layers): the
    // trainer makes and adds it, undefined without images.
    kImageRows,
  };
  Kind kind = Kind::kKeysAndValues;
  int maker = 0;             // the stage that makes it
  std::vector<int> readers;  // stages behind it, ascending; at least one

  friend bool operator==(const CarriedTensor&, const CarriedTensor&) = default;
};

// In a fixed order: keys and values by their maker, then inputs and rows of images by layer. Empty for most
// models.
std::vector<CarriedTensor> CarriedTensorsOf(const ModelSpec& spec);

// INVALID_ARGUMENT, which names the layer: a layer that reads keys and values of a layer that is not before
// it, or that has none of its own, or other heads, another rotation or window; inputs of which the layers'
// gates do not know, or of another size; a table with fewer rows than the vocabulary. UNIMPLEMENTED: layers
// with a latent, linear attention, or norms of all heads at once that read keys and values of another.
absl::Status CheckCarriedTensors(const ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CARRIED_TENSORS_H_
