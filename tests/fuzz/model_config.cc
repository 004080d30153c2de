// config.json of a model folder, and the model that it describes.
#include "common/io/model_config.h"

#include "common/model/model_spec.h"
#include "tests/fuzz/input_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  folder.Write("config.json", data, size);
  const auto config = tandem::io::ReadModelConfig(folder.path());
  if (!config.ok()) return 0;
  const auto spec = tandem::model::ParseModelSpec(config->json, config->path);
  if (spec.ok() && spec->num_parameters() <= 0) std::abort();
  return 0;
}
